"""Starting the command line stays cheap: nothing heavy is imported before a command needs it."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "cli_startup.py"


def heavy_modules() -> tuple[str, ...]:
    """The list that the benchmark documents."""
    spec = importlib.util.spec_from_file_location("cli_startup", BENCHMARK)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return tuple(module.HEAVY)


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["history", "--help"], ["serve", "--help"]], ids=str)
def test_help_imports_nothing_heavy(arguments: list[str]) -> None:
    program = (
        "import sys\n"
        "from monitor.cli import cli\n"
        "cli(sys.argv[1:], standalone_mode=False, prog_name='specwatch')\n"
        "print('MODULES', *sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=True)
    output, _, modules = result.stdout.rpartition("MODULES ")
    assert "specwatch" in output
    assert "click" in modules.split()
    assert set(heavy_modules()) & set(modules.split()) == set()
