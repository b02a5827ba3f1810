"""Trains tiny-target and tiny-draft, two Llamas with one tokenizer; the draft is distilled from the target.

    python build_models.py OUTPUT [target_minutes] [draft_minutes]

Run it with the interpreter of `.venv-vllm`. The time is the recipe: 10 and 4 minutes on two cores gave the models in
this folder; another machine gives other weights with much the same acceptance. AdamW, a cosine to a twentieth of the
peak rate, 256 tokens of context: longer prompts are outside what the models know.
"""

from __future__ import annotations

import argparse
import math
import random
import time
from pathlib import Path

import torch
import torch.nn.functional as functional
from corpus import Corpus, build_corpus
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

VOCABULARY = 2048
CONTEXT_TOKENS, BATCH = 256, 24
MAX_POSITIONS = 16384  # what vLLM is let to serve, not what was trained
CHAT_TEMPLATE = (
    "{% for m in messages %}{{ '<|' + m['role'] + '|>\n' + m['content'] + '<|end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %}"
)
END_OF_TEXT, END = "<|endoftext|>", "<|end|>"
SPECIAL_TOKENS = [END_OF_TEXT, END, "<|system|>", "<|user|>", "<|assistant|>"]


def main() -> None:
    """Train both and save them under the output directory."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("output", type=Path)
    parser.add_argument("target_minutes", type=float, nargs="?", default=10)
    parser.add_argument("draft_minutes", type=float, nargs="?", default=4)
    arguments = parser.parse_args()
    random.seed(0)
    torch.manual_seed(0)
    corpus = build_corpus()
    tokenizer = train_tokenizer(corpus)
    tokens = encode(tokenizer, corpus.documents(), seed=4)
    target = LlamaForCausalLM(llama_config(hidden=256, layers=4, heads=4, key_value_heads=2, intermediate=768))
    train(target, tokens, arguments.target_minutes, peak_rate=2e-3)
    save(target, tokenizer, arguments.output / "tiny-target")
    draft = LlamaForCausalLM(llama_config(hidden=128, layers=1, heads=2, key_value_heads=1, intermediate=384))
    train(draft, tokens, arguments.draft_minutes, peak_rate=4e-3, teacher=target.float())
    save(draft, tokenizer, arguments.output / "tiny-draft")


def train_tokenizer(corpus: Corpus) -> PreTrainedTokenizerFast:
    """A byte-level BPE: a small vocabulary keeps the embeddings, most of a tiny model, small."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=VOCABULARY, special_tokens=SPECIAL_TOKENS, initial_alphabet=alphabet)
    code = random.Random(3).sample(corpus.code, min(300, len(corpus.code)))
    tokenizer.train_from_iterator(code + corpus.prose[:3000] + corpus.arithmetic[:300], trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=None,
        eos_token=END,
        pad_token=END_OF_TEXT,
        chat_template=CHAT_TEMPLATE,
        model_max_length=MAX_POSITIONS,
    )


def encode(tokenizer: PreTrainedTokenizerFast, documents: list[str], seed: int) -> torch.Tensor:
    """All documents shuffled into one row of token ids, end-of-text between them."""
    random.Random(seed).shuffle(documents)
    ids: list[int] = []
    for row in tokenizer(documents, add_special_tokens=False).input_ids:
        ids += [*row, tokenizer.pad_token_id]
    return torch.tensor(ids)


def llama_config(hidden: int, layers: int, heads: int, key_value_heads: int, intermediate: int) -> LlamaConfig:
    """Heads of 64, the smallest that the CPU attention kernels take."""
    return LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=hidden,
        intermediate_size=intermediate,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=key_value_heads,
        head_dim=64,
        max_position_embeddings=MAX_POSITIONS,
        tie_word_embeddings=True,
        rms_norm_eps=1e-5,
        bos_token_id=None,
        eos_token_id=SPECIAL_TOKENS.index(END),
        pad_token_id=SPECIAL_TOKENS.index(END_OF_TEXT),
    )


def sample_rows(tokens: torch.Tensor, length: int, count: int) -> torch.Tensor:
    """`count` random stretches of `length` tokens."""
    starts = torch.randint(0, len(tokens) - length, (count,))
    return torch.stack([tokens[start : start + length] for start in starts])


def cosine_rate(done: float, step: int, peak: float, warmup_steps: int) -> float:
    """The learning rate after the share `done` of the time: linear warm-up, then a cosine to a twentieth."""
    return peak * min(1.0, (step + 1) / warmup_steps) * (0.05 + 0.475 * (1 + math.cos(math.pi * done)))


def distillation_loss(logits: torch.Tensor, teacher_logits: torch.Tensor) -> torch.Tensor:
    """Kullback-Leibler divergence from the teacher, per token: what makes a drafter's proposals acceptable."""
    student, teacher = functional.log_softmax(logits.float(), -1), functional.log_softmax(teacher_logits.float(), -1)
    return functional.kl_div(student, teacher, log_target=True, reduction="none").sum(-1).mean()


def train(
    model: LlamaForCausalLM,
    tokens: torch.Tensor,
    minutes: float,
    peak_rate: float,
    teacher: LlamaForCausalLM | None = None,
) -> None:
    """Train in place for so many minutes, on the text alone or four parts in five on what the teacher would say."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=peak_rate, betas=(0.9, 0.95), weight_decay=0.05)
    started, step = time.monotonic(), 0
    model.train()
    while (done := (time.monotonic() - started) / (minutes * 60)) < 1:
        for group in optimizer.param_groups:
            group["lr"] = cosine_rate(done, step, peak_rate, warmup_steps=50)
        loss = _loss(model, sample_rows(tokens, CONTEXT_TOKENS + 1, BATCH), teacher)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        step += 1
        if step % 50 == 0:
            print(f"step {step}, {done:.0%} of the time, loss {loss.item():.3f}", flush=True)
    model.eval()


def _loss(model: LlamaForCausalLM, rows: torch.Tensor, teacher: LlamaForCausalLM | None) -> torch.Tensor:
    inputs, following = rows[:, :-1], rows[:, 1:]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = model(input_ids=inputs).logits
        with torch.no_grad():
            teacher_logits = None if teacher is None else teacher(input_ids=inputs).logits
    loss = functional.cross_entropy(logits.float().reshape(-1, VOCABULARY), following.reshape(-1))
    return loss if teacher_logits is None else 0.2 * loss + distillation_loss(logits, teacher_logits)


def save(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, directory: Path) -> None:
    """Save in bfloat16 with the tokenizer beside it."""
    model.to(torch.bfloat16)
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    model.generation_config.pad_token_id = tokenizer.pad_token_id
    model.generation_config.bos_token_id = None
    model.save_pretrained(directory)
    tokenizer.save_pretrained(directory)


if __name__ == "__main__":
    main()
