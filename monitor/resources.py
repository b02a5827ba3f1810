"""Where the files that come with Specwatch are: at the top of a checkout, inside the package in a wheel."""

from pathlib import Path

from monitor.errors import SpecwatchError

_PACKAGE = Path(__file__).parent


def resource_directory(name: str) -> Path:
    """The directory `name` (`docs`, `migrations`, `probes`) of this installation.

    Raises SpecwatchError when the installation lacks it.
    """
    for candidate in (_PACKAGE / "_resources" / name, _PACKAGE.parent / name):
        if candidate.is_dir():
            return candidate
    raise SpecwatchError(f"this installation of Specwatch has no {name} directory; install it again")


def example_directory() -> Path:
    """The directory of the example configuration, which the demo runs: the top of a checkout, `example` in a wheel."""
    inside = _PACKAGE / "_resources" / "example"
    return inside if inside.is_dir() else _PACKAGE.parent
