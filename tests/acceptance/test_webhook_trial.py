"""The receiver that docs/alerts.md shows works as it is written there."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import TYPE_CHECKING

import httpx
import yaml

from tests.acceptance.processes import ROOT, Home, eventually, free_port

if TYPE_CHECKING:
    from pathlib import Path


def shown(language: str) -> str:
    """The one block of this language under "Try one"."""
    section = (ROOT / "docs/alerts.md").read_text(encoding="utf-8").partition("### Try one\n")[2].partition("\n## ")[0]
    (block,) = re.findall(rf"```{language}\n(.*?)```", section, re.DOTALL)
    return str(block)


def answers(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/").status_code == 501  # it takes nothing but POST
    except httpx.TransportError:
        return False


def test_the_web_hook_of_the_docs_gets_the_test_message_of_the_docs(tmp_path: Path) -> None:
    port = str(free_port())
    (tmp_path / "hook.py").write_text(shown("python").replace("9000", port), encoding="utf-8")
    home = Home(tmp_path, None)
    home.routes("http://127.0.0.1:1")
    home.receivers(yaml.safe_load(shown("yaml").replace("9000", port))["receivers"])
    with (tmp_path / "hook.out").open("wb") as out:
        hook = subprocess.Popen([sys.executable, str(tmp_path / "hook.py")], stdout=out, stderr=subprocess.DEVNULL)
    try:
        eventually(lambda: answers(int(port)), "the hook answers")
        tested = home.run("receivers", "test", "hook")
    finally:
        hook.kill()
        hook.wait()
    command, _, expected = shown("console").partition("\n")
    assert command == "$ specwatch receivers test hook"
    assert (tested.returncode, tested.stdout, tested.stderr) == (0, expected.replace("9000", port), "")
    got = (tmp_path / "hook.out").read_text(encoding="utf-8").splitlines()
    assert [line for line in got if not line.startswith(" ")] == [
        "firing TEST of receiver hook: this is not an alert, nothing is wrong",
        "resolved RESOLVED TEST of receiver hook: this is not an alert, nothing is wrong",
    ]
