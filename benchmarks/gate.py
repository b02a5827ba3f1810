"""How long a whole gate takes on two idle servers, what it says when it has less time, and how fast one is read.

    python benchmarks/gate.py [--step-milliseconds 15] [--prompts 24] [--reads 1000]

Two simulated servers in processes of their own, at the speed of a real one (a step every 15 ms) and with the same
drafter, are gated by the command as a pipeline does it: eleven domains, 24 prompts each, 128 tokens, the default
concurrency of 4. Then with a tenth of the time it took, to hold what it says it would need against what it did need.
Last, its verdict is kept among 500 others and `serve` is asked for it over a socket, a connection for each request.
"""

import argparse
import http.client
import json
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from stage import fleet, machine, processes

from monitor.config.units import format_duration
from monitor.core.figures import percentile
from monitor.core.gate import EXIT_CODES, Decision, GateReason
from monitor.postgres import EmbeddedPostgres
from monitor.store import gate_requests, migrate
from monitor.store.database import Database
from monitor.store.runs import measured_domains

BOUND_SECONDS = 240.0
READ_BOUND_SECONDS = 0.050
KEPT = 500
LONG = timedelta(minutes=30)
DOMAINS = 11
START_SECONDS = 90.0


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--step-milliseconds", type=float, default=15.0)
    options.add_argument("--prompts", type=int, default=24)
    options.add_argument("--reads", type=int, default=1000)
    chosen = options.parse_args()
    print(f"{machine.described()}, load {machine.load()}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with fleet.simulators(folder, 4, chosen.step_milliseconds / 1000) as simulated:
            servers = simulated.replicas[0], simulated.replicas[-1]  # of two processes, and of two seeds
            verdict, seconds = gated(servers, chosen.prompts, LONG)
            steps = sum(map(engine_steps, servers))
            told(verdict, seconds, steps / verdict["concurrency"] * chosen.step_milliseconds / 1000)
            short = timedelta(seconds=round(seconds / 10))
            late, cut = gated(servers, chosen.prompts, short)
            print(f"with --timeout {format_duration(short)}: {late['reason']} after {cut:.0f} s: {late['text']}")
        read(folder, verdict, chosen.reads)


def gated(servers: tuple[str, str], prompts: int, timeout: timedelta) -> tuple[dict[str, Any], float]:
    """The verdict of the command, and how long it took from its start to its end."""
    words = ["gate", "--candidate", servers[1], "--against", servers[0], "--prompts", str(prompts)]
    command = [sys.executable, "-m", "monitor", *words, "--timeout", format_duration(timeout), "--format", "json"]
    began = time.monotonic()
    ended = subprocess.run(command, check=False, capture_output=True, text=True)
    seconds = time.monotonic() - began
    if ended.returncode not in (EXIT_CODES[Decision.PASS], EXIT_CODES[Decision.INCONCLUSIVE]):
        sys.exit(f"the gate failed: {ended.stdout}{ended.stderr}")
    return json.loads(ended.stdout), seconds


def engine_steps(server: str) -> float:
    """Steps of every request that it has served so far, by its counters."""
    with urlopen(f"{server}/metrics", timeout=5) as page:
        lines = page.read().decode().splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith("vllm:spec_decode_num_drafts_total"))


def told(verdict: dict[str, Any], seconds: float, least: float) -> None:
    """`least`: what the engines' steps take by themselves, with every place of the concurrency taken all the time."""
    pairs = [domain["pairs"] for domain in verdict["domains"]]
    prompts = {domain["prompts_total"] for domain in verdict["domains"]}
    words = "inside" if seconds <= BOUND_SECONDS else "over"
    if verdict["reason"] != GateReason.NO_REGRESSION:
        print(f"not passed: {verdict['text']}")
    print(
        f"{len(pairs)} domains of {max(prompts)} prompts of {verdict['sampling']['max_tokens']} tokens at concurrency "
        f"{verdict['concurrency']}: {seconds:.0f} s for {2 * sum(pairs)} runs, {words} the bound of "
        f"{BOUND_SECONDS:g} s; the servers' steps alone take {least:.0f} s; load {machine.load()}"
    )


def read(folder: Path, verdict: dict[str, Any], times: int) -> None:
    """`GET /api/v1/gates/ID` of a `serve` whose route has nothing to probe for a day."""
    port = fleet.free_port()
    with EmbeddedPostgres(folder / "data") as url:
        database = Database(url)
        migrate.upgrade(database)
        kept = {**verdict, "route": "chat"}
        with database.transaction() as connection:
            for _ in range(KEPT):
                gate_id = gate_requests.begin(connection, kept)
                gate_requests.finish(connection, gate_id, kept, datetime.now(UTC))
        (folder / "routes.yaml").write_text(
            "routes: [{name: chat, replicas: ['http://127.0.0.1:9'], every: 1d}]\n"
            "api_tokens: [{name: bench, token: {env: BENCH_TOKEN}, scopes: ['gates:read']}]\n"
        )
        (folder / "alerting.yaml").write_text(
            "rules: [{name: d, metric: acceptance_length, drop: 15%, severity: page}]\n"
            "receivers: [{name: log, log: {}}]\n"
        )
        serve = ("-m", "monitor", "--config", str(folder), "serve", "--listen", f"127.0.0.1:{port}")
        environment = {"DATABASE_URL": database.conninfo(), "BENCH_TOKEN": "s3cret"}
        with processes.python(*serve, log=folder / "serve.log", environment=environment):
            processes.wait_for(f"http://127.0.0.1:{port}/readyz")
            rests(database)
            asked(port, gate_id, 20)
            seconds, size = asked(port, gate_id, times)
        database.close()
    p50, p99 = (percentile(seconds, share) or 0.0 for share in (0.50, 0.99))
    words = "inside" if p99 <= READ_BOUND_SECONDS else "over"
    print(
        f"GET /api/v1/gates/ID, {size / 1024:.0f} KB, {times} times, among {KEPT} gates: p50 {p50 * 1000:.1f} ms, p99 "
        f"{p99 * 1000:.1f} ms, worst {max(seconds) * 1000:.1f} ms; {words} the bound of "
        f"{READ_BOUND_SECONDS * 1000:g} ms at p99; load {machine.load()}"
    )


def rests(database: Database) -> None:
    """Waits until what was due at the start is recorded: the first verdict alone loads scipy, for a second of CPU."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        with database.transaction() as connection:
            if len(measured_domains(connection, "chat")) == DOMAINS:
                return time.sleep(2.0)
        time.sleep(0.5)
    sys.exit("serve has not recorded its first probes")


def asked(port: int, gate_id: int, times: int) -> tuple[list[float], int]:
    """Seconds from opening the connection to the last byte, and the bytes of the body."""
    seconds, body = [], b""
    for _ in range(times):
        began = time.perf_counter()
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        connection.request("GET", f"/api/v1/gates/{gate_id}", headers={"Authorization": "Bearer s3cret"})
        answer = connection.getresponse()
        body = answer.read()
        connection.close()
        seconds.append(time.perf_counter() - began)
        if answer.status != 200:
            sys.exit(f"serve answered {answer.status}: {body!r}")
    return seconds, len(body)


if __name__ == "__main__":
    main()
