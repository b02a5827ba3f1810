"""Copies a target with layers appended that compute and change nothing: the same outputs, a slower step.

    python deepen_target.py SOURCE DESTINATION LAYERS

With tiny-target a verification step costs about what a draft step costs; a dozen layers more give the drafter the
advantage that drafters have in production, and with it a speedup that shrinks with concurrency.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

from safetensors.torch import load_file, save_file

ADDED_TO_THE_RESIDUAL = ("o_proj.weight", "down_proj.weight")  # zero these and a layer adds nothing


def deepen(source: Path, destination: Path, layers: int) -> None:
    """Write the deeper copy; the destination appears whole or not at all."""
    unfinished = destination.with_name(destination.name + ".unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    shutil.copytree(source, unfinished)
    config = json.loads((source / "config.json").read_text())
    weights = load_file(source / "model.safetensors")
    first = {name: weight for name, weight in weights.items() if name.startswith("model.layers.0.")}
    for added in range(layers):
        for name, weight in first.items():
            null = weight.clone().zero_() if name.endswith(ADDED_TO_THE_RESIDUAL) else weight.clone()
            weights[name.replace("layers.0.", f"layers.{config['num_hidden_layers'] + added}.")] = null
    config["num_hidden_layers"] += layers
    (unfinished / "config.json").write_text(json.dumps(config, indent=1))
    save_file(weights, unfinished / "model.safetensors", metadata={"format": "pt"})
    shutil.rmtree(destination, ignore_errors=True)
    unfinished.rename(destination)


if __name__ == "__main__":
    deepen(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
