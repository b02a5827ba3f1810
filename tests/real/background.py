"""Clients that keep a server busy until killed: `python -m tests.real.background URL CLIENTS [DOMAIN]`.

They ask what is asked in that domain, in all of them without one. Prints a line when each of them has had a first,
short answer, and begins the long ones.
"""

from __future__ import annotations

import sys
import threading
import time

import httpx

from tests.real.client import ALL_PROMPTS, PROMPTS, stream_chat

ANSWER_TOKENS = 600
"""Long answers: between two of them a client that gets little of the processor leaves the server quiet."""
PAUSE_SECONDS = 0.2
"""After a request that failed, so that a server that is gone is not asked without end."""


def keep_asking(url: str, prompts: list[str], together: threading.Barrier) -> None:
    """One answer after another; a failed one is told and does not end the work."""
    stream_chat(url, prompts[0], 1)
    together.wait()
    while True:
        for prompt in prompts:
            try:
                stream_chat(url, prompt, ANSWER_TOKENS, ignore_eos=True)
            except (httpx.HTTPError, RuntimeError, ValueError) as error:
                print(f"background client: {prompt!r}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
                time.sleep(PAUSE_SECONDS)


def main(url: str, clients: int, domain: str | None = None) -> None:
    """Returns never. Every client begins with another prompt."""
    prompts = ALL_PROMPTS if domain is None else PROMPTS[domain]
    together = threading.Barrier(clients, action=lambda: print("at work", flush=True))
    for number in range(clients):
        first = number % len(prompts)
        threading.Thread(target=keep_asking, args=(url, prompts[first:] + prompts[:first], together)).start()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), *sys.argv[3:])
