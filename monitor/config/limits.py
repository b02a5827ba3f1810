"""The largest numbers that mean something; beyond them is a slip of the keyboard. Inclusive."""

MAX_TOKENS = 1_000_000
"""Completion tokens of one answer: as long as the contexts of the models there are."""
MAX_CONCURRENCY = 1_024
"""Prompts in flight: what one process can keep in step."""
MAX_PROMPTS = 10_000
MAX_WAITING = 1_000_000
MAX_SEED = 2**63 - 1
"""What vLLM takes."""
MAX_K = 1_000
MAX_GPUS = 10_000
MAX_RUNS = 1_000
MAX_SPEEDUP = 100
MAX_WEIGHT = 1_000_000
"""Of one domain in a mix, where only proportions count."""
