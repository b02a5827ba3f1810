"""The live server keeps the contract that captures and the simulator are held to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests import contract
from tests.real.servers import DRAFT_TOKENS, RealServer

if TYPE_CHECKING:
    from tests.real.pool import ServerPool

PROMPTS = ["Write the times table of 7.", "Continue the text: You may", "def main("]


def test_a_plain_server_keeps_the_contract(servers: ServerPool) -> None:
    expected = contract.Expected(k=0, timings=False)
    contract.exercise(servers.get("plain").base_url, expected, PROMPTS)


def test_a_speculative_server_keeps_the_contract(speculative: RealServer) -> None:
    always_drafts = speculative.kind in ("draft", "eagle")
    expected = contract.Expected(k=DRAFT_TOKENS[speculative.kind], always_drafts=always_drafts)
    contract.exercise(speculative.base_url, expected, PROMPTS)
