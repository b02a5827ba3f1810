"""The wheel works where the tree is not: its commands run, and find migrations and prompt sets inside it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


class Installed:
    """The wheel in an environment of its own; dependencies are those of the environment that runs the tests."""

    def __init__(self, environment: Path, home: Path) -> None:
        self.bin = environment / ("Scripts" if sys.platform == "win32" else "bin")
        self.home = home
        kept = {name: os.environ[name] for name in ("PATH", "LANG", "SYSTEMROOT") if name in os.environ}
        self.variables = {**kept, "HOME": str(home), "SPECWATCH_DATA": str(home / "data")}

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        """A command of the environment, started in an empty directory."""
        program = str(self.bin / command[0])
        return subprocess.run(
            [program, *command[1:]], cwd=self.home, env=self.variables, capture_output=True, text=True, check=False
        )


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(directory)]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    (built,) = directory.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    environment = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True)
    found = Installed(environment, tmp_path_factory.mktemp("home"))
    python = str(found.bin / "python")
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "--python", python]
    subprocess.run([*pip, "install", "--no-index", "--no-deps", str(wheel)], check=True)
    site_packages = found.run("python", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").stdout.strip()
    # A .pth file adds a directory without running the .pth files in it, so an editable install there has no effect.
    (Path(site_packages) / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    return found


def test_the_wheel_holds_the_program_migrations_prompts_and_licence_and_nothing_of_the_tests(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert "monitor/cli/__init__.py" in names
    for directory, pattern in (("migrations", "versions/*.py"), ("probes", "*.jsonl")):
        expected = {path.relative_to(ROOT).as_posix() for path in (ROOT / directory).glob(pattern)}
        assert expected
        assert {f"monitor/_resources/{name}" for name in expected} <= set(names)
    assert {"monitor/_resources/example/routes.yaml", "monitor/_resources/example/alerting.yaml"} <= set(names)
    assert "monitor/_resources/docs/alerts.md" in names
    assert any(name.endswith("licenses/LICENSE") for name in names)
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"monitor"}


def test_the_command_runs_from_the_wheel_and_not_from_the_tree(installed: Installed) -> None:
    result = installed.run("specwatch", "--help")
    assert result.returncode == 0, result.stderr
    assert "serve" in result.stdout
    where = Path(installed.run("python", "-c", "import monitor; print(monitor.__file__)").stdout)
    assert where.is_relative_to(installed.bin.parent)


def test_prompt_sets_are_found_in_the_wheel(installed: Installed) -> None:
    result = installed.run("specwatch", "prompts", "list", "--format", "json")
    assert result.returncode == 0, result.stderr
    found = {row["domain"]: row["prompts"] for row in json.loads(result.stdout)}
    assert set(found) == {path.stem for path in (ROOT / "probes").glob("*.jsonl")}
    assert min(found.values()) >= 32


def test_migrations_are_found_in_the_wheel(installed: Installed) -> None:
    before = installed.run("specwatch", "db", "status", "--format", "json")
    assert before.returncode == 3, before.stderr
    assert json.loads(before.stdout)["current"] is None
    assert installed.run("specwatch", "db", "upgrade").returncode == 0
    after = installed.run("specwatch", "db", "status", "--format", "json")
    assert after.returncode == 0, after.stderr
    newest = max(path.name.split("_")[0] for path in (ROOT / "migrations/versions").glob("*.py"))
    assert json.loads(after.stdout)["current"] == json.loads(before.stdout)["head"]
    assert newest in json.loads(after.stdout)["head"]
