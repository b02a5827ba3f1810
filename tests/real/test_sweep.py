"""`specwatch sweep` starts real servers in turn, measures the curve, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from click.testing import CliRunner

from monitor.cli import cli
from tests.real.product import specwatch
from tests.real.servers import ENVIRONMENT, MODELS, SERVED_MODEL, realtime, speculative_config, vllm_python

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.real.pool import ServerPool
    from tests.real.tables import Tables

CONCURRENCIES = (1, 4, 16)
ARGUMENTS = f"--served-model-name {SERVED_MODEL} --max-model-len 4096 --max-num-seqs 32 --dtype float32 --enforce-eager"


def test_a_sweep_starts_and_stops_its_servers_and_finds_where_speculation_pays(
    servers: ServerPool, tables: Tables, tmp_path: Path
) -> None:
    servers.stop_all()
    store = {"SPECWATCH_DATA": str(tmp_path / "data")}
    options = [
        *("--model", str(MODELS / "tiny-target"), "--save", "--log-dir", str(tmp_path / "logs")),
        *("--speculative-config", json.dumps(speculative_config("draft"))),
        *("--speculative-config", json.dumps(speculative_config("ngram"))),
        *("--vllm-command", f"{vllm_python()} -m vllm.entrypoints.openai.api_server --model"),
        *("--vllm-args", ARGUMENTS, "--concurrency", ",".join(map(str, CONCURRENCIES))),
        *("--prompts", "12", "--repeats", "3", "--max-tokens", "64"),
    ]
    with (
        realtime() as on_time,
        sessions_of(str(tmp_path)) as seen,
    ):  # in this process, so that the servers it starts run at normal priority
        result = CliRunner().invoke(cli, ["sweep", *options], env={**store, **ENVIRONMENT, "PYTHONPATH": None})
    assert result.exit_code == 0, result.output
    kept = specwatch("sweeps", "--format", "json", **store)
    tables.show("real vLLM: a sweep with servers of its own", result.stdout)

    assert len(seen) == 3, "a plain server and one for each config, in sessions of their own"
    assert seen.isdisjoint(session for session, _ in vllm_processes())
    ngram, draft = json.loads(kept.stdout)
    assert (draft["label"], ngram["label"]) == ("draft_model K=4 tiny-draft", "ngram K=4")
    for sweep in (draft, ngram):
        assert (sweep["speculative_identity"]["k"], sweep["plain_identity"]["k"]) == (4, None)
        assert [point["concurrency"] for point in sweep["points"]] == list(CONCURRENCIES)
        assert sweep["crossover"]["outcome"] in ("crosses", "none_in_range", "never_pays")
        for point in sweep["points"]:
            if not on_time and point["invalid_reason"] == "bunched_stream":
                continue
            assert point["invalid_reason"] is None
            assert point["speedup"]["low"] < point["speedup"]["ratio"] < point["speedup"]["high"]
            assert point["speculative"]["source"] == "request"
            assert 1 <= point["speculative"]["tokens_per_step"] <= 5
    assert draft["points"][0]["speculative"]["tokens_per_step"] > 1.3
    assert ngram["points"][0]["speculative"]["acceptance_length"] > 1


@contextmanager
def sessions_of(mark: str) -> Iterator[set[int]]:
    """Collects, while the block runs, the sessions of the API servers that have the mark in their environment."""
    seen: set[int] = set()
    over = threading.Event()

    def look() -> None:
        while not over.wait(1):
            seen.update(session for session, environment in vllm_processes() if mark.encode() in environment)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield seen
    finally:
        over.set()
        thread.join()


def vllm_processes() -> Iterator[tuple[int, bytes]]:
    """Session and environment of every process of vLLM that runs now; workers, which rename themselves, lose theirs."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command, environment = path.read_bytes(), path.with_name("environ").read_bytes()
            session = os.getsid(int(path.parent.name))
        except OSError:
            continue
        if b"vllm.entrypoints" in command or command.startswith(b"VLLM::"):
            yield session, environment
