"""What every source says of one server's acceptance length, on a quiet server and beside other clients."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from monitor.core.figures import acceptance_length, aggregate
from monitor.core.records import Counts, Identity
from tests.real.client import read_counters, requests_running
from tests.real.product import METHODS, background_clients, eventually, replayed

if TYPE_CHECKING:
    from collections.abc import Iterable

    from monitor.core.records import Run, Sample
    from monitor.prompts.sets import PromptSet
    from tests.real.servers import RealServer
    from tests.real.tables import Tables

CLIENTS = (0, 4, 16)
"""Background clients: none is a quiet server."""
OUR_OWN = 4
"""Prompts of ours in flight beside them."""
PROMPTS = 24
"""Some 800 steps: well above the 500 from where a run says of its sources that they disagree."""
REFUSED_PROMPTS = 6
LOST = ("cut_off", "connect_timeout", "first_token_timeout", "stalled", "total_timeout")
"""Where processes stand still for seconds, the server closes connections that wait or falls silent, and prompts are
lost on that."""
ATTEMPTS = 8
"""For a run as wanted: one that lost no prompt (which are left would decide its acceptance length), and under load one
that met the load (a process that stands still asks for nothing, and the server is quiet meanwhile)."""


@dataclass(frozen=True)
class Seen:
    """One load: a run of source `request` with what the other sources say of its answers; under load, `counters`."""

    clients: int
    asked: Run
    counted: Run | None = None

    @property
    def request(self) -> float:
        return self.asked.acceptance_by_source["request"]

    @property
    def stream(self) -> float | None:
        return self.asked.acceptance_by_source.get("stream")

    @property
    def counters(self) -> float | None:
        return self.asked.acceptance_by_source.get("counters")

    def of_the_same_outputs(self, quiet: Seen) -> tuple[float, float]:
        """By `request`, quiet and now, over the prompts (half of them at least) whose output is the same.

        The others met a near tie, which the size of a batch decides.
        """
        before = {sample.question_id: sample for sample in quiet.asked.samples}
        pairs = [(before[sample.question_id], sample) for sample in self.asked.samples]
        same = [(then, now) for then, now in pairs if then.output_hash == now.output_hash is not None]
        assert 2 * len(same) >= len(pairs), f"only {len(same)} of {len(pairs)} outputs are what they were"
        quiet_side, loaded_side = zip(*same, strict=True)
        return _pooled_length(quiet_side), _pooled_length(loaded_side)

    @property
    def stream_says_that_it_differs(self) -> bool:
        return any("source stream disagrees" in warning for warning in self.asked.warnings)


def seen_at_every_load(server: RealServer, prompts: PromptSet) -> list[Seen]:
    """In the order of CLIENTS; the same prompts each time."""
    return [_seen(server, prompts, clients) for clients in CLIENTS]


def run_of(
    server: RealServer, prompts: PromptSet, source: str, limit: int = PROMPTS, *, under_load: bool = False
) -> Run:
    """A run that lost no prompt; `under_load`, one beside which the server generated more for others than for us."""
    declared = Identity(method=METHODS[server.kind])
    options = {"source": source, "limit": limit, "declared_identity": declared, "concurrency": OUR_OWN}
    met = []
    for _ in range(ATTEMPTS):
        if under_load:
            eventually(lambda: requests_running(server.base_url) > 0, "the background clients are at work", 120)
        before = read_counters(server.base_url).generated
        (found,) = replayed(server.base_url, [prompts], **options)
        generated = read_counters(server.base_url).generated - before
        own = sum(sample.completion_tokens for sample in found.samples)
        lost = Counter(sample.invalid_reason for sample in found.samples if sample.invalid_reason in LOST)
        if not lost and (not under_load or generated > 2 * own):
            return found
        met.append(f"{generated} tokens generated, {own} of them ours, lost {dict(lost)}")
    raise AssertionError(f"none of {ATTEMPTS} runs of source {source} is as wanted: {'; '.join(met)}")


def _pooled_length(samples: Iterable[Sample]) -> float:
    length = acceptance_length(sum((sample.counts for sample in samples), Counts()))
    assert length is not None
    return length


def _seen(server: RealServer, prompts: PromptSet, clients: int) -> Seen:
    if not clients:
        return Seen(0, run_of(server, prompts, "request"))
    with background_clients(server.base_url, clients):
        asked = run_of(server, prompts, "request", under_load=True)
        return Seen(clients, asked, run_of(server, prompts, "counters", REFUSED_PROMPTS, under_load=True))


def add_to_table(tables: Tables, server: RealServer, found: list[Seen], alone: Run | None) -> None:
    """One table a method: a row for each load, and what the stream `alone` is read as."""
    title = f"real vLLM: acceptance length by source and load, {METHODS[server.kind]}"
    drafter = {"drafter": server.drafter.name if server.drafter else server.kind}
    for seen in found:
        tables.add(
            title,
            **drafter,
            clients=seen.clients,
            request=seen.request,
            stream=seen.stream,
            counters="refused" if seen.counted is not None and seen.counters is None else seen.counters,
            stream_says="it differs" if seen.stream_says_that_it_differs else None,
        )
    if alone is not None:
        says = f"{aggregate(alone.domain, alone.samples).tokens_per_step or 0:.3f} tokens per step, which is not AL"
        tables.add(title, **drafter, clients=0, stream_says=says)
