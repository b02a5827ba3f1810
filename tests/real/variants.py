"""Models derived from the tiny ones at test time and kept in the cache: worse drafters, other targets, slower ones."""

from __future__ import annotations

import hashlib
import subprocess
from typing import TYPE_CHECKING

from tests.real.servers import CACHE, MODELS, vllm_python

if TYPE_CHECKING:
    from pathlib import Path


def graded_drafter(noise: float, kind: str = "draft") -> Path:
    """tiny-draft (or tiny-eagle) with so many standard deviations of noise on its weights; 0 is the drafter itself."""
    return _derived("grade_drafter.py", MODELS / f"tiny-{kind}", noise) if noise else MODELS / f"tiny-{kind}"


def graded_target(noise: float) -> Path:
    """tiny-target with so many standard deviations of noise on its weights: other outputs, less of them guessed."""
    return _derived("grade_drafter.py", MODELS / "tiny-target", noise)


def deep_target(layers: int = 12) -> Path:
    """tiny-target with so many layers more that change nothing: the same outputs, a slower step."""
    return _derived("deepen_target.py", MODELS / "tiny-target", layers)


def _derived(script: str, source: Path, amount: float) -> Path:
    made_from = (MODELS / script).read_bytes() + (source / "model.safetensors").read_bytes()
    made_from += (source / "config.json").read_bytes()
    destination = CACHE / "models" / f"{source.name}-{amount}-{hashlib.sha256(made_from).hexdigest()[:8]}"
    if not destination.exists():
        destination.parent.mkdir(parents=True, exist_ok=True)
        python = vllm_python()
        if python is None:
            raise RuntimeError("no interpreter with vLLM: run tests/real/install.py or set SPECWATCH_VLLM_PYTHON")
        subprocess.run([python, MODELS / script, source, destination, str(amount)], check=True)
    return destination
