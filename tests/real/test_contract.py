"""The live server keeps the contract that captures and the simulator are held to."""

from __future__ import annotations

from typing import TYPE_CHECKING

import httpx

from tests import contract
from tests.real.servers import DRAFT_TOKENS, RealServer

if TYPE_CHECKING:
    from tests.real.pool import ServerPool

PROMPTS = ["Write the times table of 7.", "Continue the text: You may", "def main("]


def test_a_plain_server_keeps_the_contract(servers: ServerPool) -> None:
    expected = contract.Expected(k=0, timings=False, merges=True)
    exercise(servers.get("plain"), expected)


def test_a_speculative_server_keeps_the_contract(speculative: RealServer) -> None:
    always_drafts = speculative.kind in ("draft", "eagle")
    expected = contract.Expected(k=DRAFT_TOKENS[speculative.kind], always_drafts=always_drafts, merges=True)
    exercise(speculative, expected)


def exercise(server: RealServer, expected: contract.Expected) -> None:
    """The whole contract, with the patience that a starved server needs."""
    with httpx.Client(base_url=server.base_url, timeout=120) as client:
        contract.exercise(client, expected, PROMPTS)
