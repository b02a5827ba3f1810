"""Copies a drafter with Gaussian noise added to every weight matrix: the same target, a drafter as bad as wanted.

    python grade_drafter.py SOURCE DESTINATION NOISE

NOISE is in standard deviations of the matrix it is added to. The seed is fixed, so 0.2 is always the same drafter. With
tiny-draft, 0.1 costs a few percent of acceptance length in arithmetic and 14 in code; 0.4 costs 28 and 48. Of a target
it makes another, which answers otherwise.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file


def grade(source: Path, destination: Path, noise: float) -> None:
    """Write the noisy copy; the destination appears whole or not at all."""
    unfinished = destination.with_name(destination.name + ".unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    shutil.copytree(source, unfinished)
    weights = load_file(source / "model.safetensors")
    generator = torch.Generator().manual_seed(5)
    for name, weight in weights.items():
        if weight.ndim == 2:
            spread = weight.float().std()
            noisy = weight.float() + noise * spread * torch.randn(weight.shape, generator=generator)
            weights[name] = noisy.to(weight.dtype)
    save_file(weights, unfinished / "model.safetensors", metadata={"format": "pt"})
    shutil.rmtree(destination, ignore_errors=True)
    unfinished.rename(destination)


if __name__ == "__main__":
    grade(Path(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3]))
