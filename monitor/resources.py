"""Where the files that are not code live: beside the package in a checkout, inside it in a wheel."""

from __future__ import annotations

from pathlib import Path


def resource_directory(name: str) -> Path:
    """The directory `migrations` or `probes`, wherever Specwatch is installed. Raises FileNotFoundError."""
    package = Path(__file__).parent
    for candidate in (package / "_resources" / name, package.parent / name):
        if candidate.is_dir():
            return candidate
    raise FileNotFoundError(f"{name} is missing from this installation of Specwatch")
