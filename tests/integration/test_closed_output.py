"""The command as a process whose output nobody reads to the end."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize("command", [("prompts", "show", "rag"), ("prompts", "list"), ("probe", "--help")])
def test_a_pipe_that_is_closed_early_is_no_crash(command):
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "monitor", *command], stdout=writer, stderr=subprocess.PIPE, check=False, text=True
        )
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (0, "")


def test_an_output_without_our_characters_still_gets_the_table():
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(
        [sys.executable, "-m", "monitor", "prompts", "list"], env=environment, capture_output=True, check=False
    )
    assert (done.returncode, b"coding" in done.stdout) == (0, True)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a device that is always full")
def test_a_full_disk_under_the_output_is_said_in_one_line():
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "monitor", "prompts", "list"],
            stdout=full, stderr=subprocess.PIPE, check=False, text=True,
        )  # fmt: skip
    said = "specwatch: cannot write the output: No space left on device; make room, or write elsewhere\n"
    assert (done.returncode, done.stderr) == (2, said)
