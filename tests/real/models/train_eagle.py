"""Trains tiny-eagle, an EAGLE head of one layer for the tiny-target under MODELS, and saves it beside it.

    python train_eagle.py MODELS [minutes]

The head sees the target's last hidden state and the embedding of the token after it, and predicts the next hidden
state; the target's own output layer turns that into tokens. It is trained two steps deep, the second on its own output.
9 minutes on two cores gave the head in this folder.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import torch
import torch.nn.functional as functional
from build_models import cosine_rate, distillation_loss, encode, sample_rows
from corpus import build_corpus
from safetensors.torch import save_file
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from transformers.models.llama.modeling_llama import LlamaModel

CONTEXT_TOKENS, BATCH = 192, 16


class Head(nn.Module):
    """A projection of (embedding, hidden) into one decoder layer without outer norms, as in EagleLlamaForCausalLM."""

    def __init__(self, target: LlamaForCausalLM) -> None:
        super().__init__()
        config = LlamaConfig(**{**target.config.to_dict(), "num_hidden_layers": 1})
        self.core = LlamaModel(config)
        self.core.embed_tokens = None
        self.core.layers[0].input_layernorm = nn.Identity()
        self.core.norm = nn.Identity()
        self.fc = nn.Linear(2 * config.hidden_size, config.hidden_size, bias=False)

    def forward(self, embedded: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
        """The predicted hidden states one position on."""
        return self.core(inputs_embeds=self.fc(torch.cat([embedded, hidden], -1))).last_hidden_state


def main() -> None:
    """Train and save."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", type=Path)
    parser.add_argument("minutes", type=float, nargs="?", default=9)
    arguments = parser.parse_args()
    torch.manual_seed(0)
    target = LlamaForCausalLM.from_pretrained(arguments.models / "tiny-target", dtype=torch.float32).eval()
    tokenizer = PreTrainedTokenizerFast.from_pretrained(arguments.models / "tiny-target")
    tokens = encode(tokenizer, build_corpus().documents(every=3), seed=5)
    head = Head(target)
    train(head, target, tokens, arguments.minutes)
    save(head, target, arguments.models / "tiny-eagle")


def train(head: Head, target: LlamaForCausalLM, tokens: torch.Tensor, minutes: float) -> None:
    """Train the head in place for so many minutes; the target stays as it is."""
    target.requires_grad_(False)
    optimizer = torch.optim.AdamW(head.parameters(), lr=1e-3, betas=(0.9, 0.95))
    started, step = time.monotonic(), 0
    while (done := (time.monotonic() - started) / (minutes * 60)) < 1:
        for group in optimizer.param_groups:
            group["lr"] = cosine_rate(done, step, peak=2e-3, warmup_steps=30)
        loss = two_step_loss(head, target, sample_rows(tokens, CONTEXT_TOKENS, BATCH))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(head.parameters(), 1.0)
        optimizer.step()
        step += 1
        if step % 25 == 0:
            print(f"step {step}, {done:.0%} of the time, loss {loss.item():.3f}", flush=True)


def two_step_loss(head: Head, target: LlamaForCausalLM, rows: torch.Tensor) -> torch.Tensor:
    """Distance from the target's own words at the first drafted position and, at half weight, at the second."""
    with torch.no_grad():
        hidden = target.model(input_ids=rows).last_hidden_state
        logits, embedded = target.lm_head(hidden), target.model.embed_tokens(rows)
    first = head(embedded[:, 1:], hidden[:, :-1])
    second = head(embedded[:, 2:], first[:, :-1])
    loss = distillation_loss(target.lm_head(first), logits[:, 1:])
    loss = loss + 0.1 * functional.smooth_l1_loss(first, hidden[:, 1:])
    return loss + 0.5 * distillation_loss(target.lm_head(second), logits[:, 2:])


def save(head: Head, target: LlamaForCausalLM, directory: Path) -> None:
    """Save under the names vLLM's EAGLE loader expects; embeddings and output layer come from the target at load."""
    weights = {"fc.weight": head.fc.weight} | dict(head.core.state_dict())
    kept = {name: value for name, value in weights.items() if "rotary" not in name and "embed_tokens" not in name}
    directory.mkdir(parents=True, exist_ok=True)
    tensors = {name: value.detach().to(torch.bfloat16).contiguous() for name, value in kept.items()}
    save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})
    shape = {"num_hidden_layers": 1, "architectures": ["EagleLlamaForCausalLM"], "tie_word_embeddings": False}
    config = target.config.to_dict() | shape | {"dtype": "bfloat16"}
    del config["_name_or_path"]
    (directory / "config.json").write_text(json.dumps(config, indent=1))


if __name__ == "__main__":
    main()
