"""Specwatch's client as one run uses it: every prompt of a set at once, from the first look to the counted samples.

    python benchmarks/stage/own_client.py URL STREAMS CHUNKS RESULT

Writes the inter-chunk times of every stream to RESULT, in seconds.
"""

import asyncio
import json
import sys
from itertools import pairwise
from pathlib import Path

from monitor.core.records import Sampling
from monitor.engines.vllm import VllmEngine
from monitor.probing.replay import StandAside, replay
from monitor.probing.target import Target
from monitor.prompts.sets import Prompt, PromptSet, content_hash


async def gaps(url: str, streams: int, chunks: int) -> list[list[float]]:
    prompts = tuple(Prompt(f"q{n}", "coding", "", (f"Prompt {n}",)) for n in range(streams))
    run = await replay(
        Target(url),
        VllmEngine(),
        PromptSet("coding", prompts, content_hash(prompts)),
        route="paced",
        sampling=Sampling(max_tokens=chunks),
        concurrency=streams,
    )
    if isinstance(run, StandAside) or run.invalid_reason:
        sys.exit(f"the paced server cannot be measured: {run}")
    return [
        [later - sooner for sooner, later in pairwise(times)]
        for sample in run.samples
        for times in sample.chunk_seconds
    ]


if __name__ == "__main__":
    url, streams, chunks, result = sys.argv[1:]
    Path(result).write_text(json.dumps(asyncio.run(gaps(url, int(streams), int(chunks)))))
