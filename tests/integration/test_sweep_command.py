"""`specwatch sweep` and `sweeps`, against simulated servers over real HTTP and against servers it starts itself."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest
from click.testing import CliRunner, Result

from monitor.cli import cli
from monitor.errors import TargetError, UsageError
from monitor.sim.behaviour import Behaviour
from monitor.sim.model import Drafter
from monitor.sim.server import ServerConfig, SimulatedServer

if TYPE_CHECKING:
    from collections.abc import Iterator

STAND_IN = f"{sys.executable} {Path(__file__).parent / 'vllm_serve.py'}"
NGRAM = '{"method": "ngram", "num_speculative_tokens": 4}'
QUICK = ("--max-tokens", "16", "--prompts", "12", "--repeats", "2")
BATCHES_COST = Behaviour(step_time_seconds=0.002, token_time_seconds=0.0002)


@pytest.fixture
def speculative() -> Iterator[str]:
    with SimulatedServer(behaviour=BATCHES_COST).run_in_thread() as url:
        yield url


@pytest.fixture
def plain() -> Iterator[str]:
    with SimulatedServer(ServerConfig(drafter=Drafter(method=None)), behaviour=BATCHES_COST).run_in_thread() as url:
        yield url


def sweep(*arguments: str, **environment: str) -> Result:
    return CliRunner().invoke(cli, ["sweep", *arguments], env=environment)


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_running_servers_give_a_curve_with_intervals_and_a_crossover(plain, speculative):
    options = ("--plain", plain, "--speculative", speculative, "--concurrency", "1,8", *QUICK)
    result = sweep(*options, "--format", "json", "--gpus", "2")
    (document,) = json.loads(result.stdout)
    assert result.exit_code == 0
    assert (document["plain_replica"], document["speculative_replica"]) == (plain, speculative)
    assert (document["plain_identity"]["k"], document["speculative_identity"]["k"]) == (None, 4)
    assert (document["interleaved"], document["gpus"]) == (True, 2)
    assert [point["concurrency"] for point in document["points"]] == [1, 8]
    for point in document["points"]:
        speedup = point["speedup"]
        assert speedup["low"] < speedup["ratio"] < speedup["high"]
        assert (speedup["n"], speedup["repeats"]) == (12, 2)
        assert (point["plain"]["prompts_valid"], point["plain"]["prompts_total"]) == (24, 24)
        assert point["plain"]["acceptance_length"] is None
        assert point["speculative"]["source"] == "request"
        assert 1 < point["speculative"]["acceptance_length"] < 5
        assert point["plain"]["tokens_per_second_per_gpu"] == pytest.approx(point["plain"]["tokens_per_second"] / 2)
    assert document["crossover"]["outcome"] in ("crosses", "none_in_range", "never_pays")


def test_the_table_fits_a_terminal_and_csv_has_a_row_for_each_point(plain, speculative):
    options = ("--plain", plain, "--speculative", speculative, "--concurrency", "1,2", *QUICK)
    result = sweep(*options)
    table = result.stdout
    rows = list(csv.DictReader(io.StringIO(sweep(*options, "--format", "csv").stdout)))
    assert "2 passes a point, passes interleaved;\nratios are measured, with 95 % intervals" in table
    assert re.search(r"^ +1 +\d\.\d\d \[\d\.\d\d, \d\.\d\d\] ", table, re.MULTILINE)
    assert "\ncrossover: " in table
    assert max(map(len, table.splitlines())) <= 100
    assert [line.split(" in ")[0] for line in result.stderr.splitlines() if line.startswith("concurrency ")] == [
        "concurrency 1 is measured: 56 of 120 requests",
        "concurrency 2 is measured: 120 of 120 requests",
    ]
    assert [(row["label"], row["concurrency"]) for row in rows] == [(speculative, "1"), (speculative, "2")]


def test_a_plain_server_that_speculates_is_refused(speculative):
    result = sweep("--plain", speculative, "--speculative", speculative, "--concurrency", "1", *QUICK)
    assert isinstance(result.exception, TargetError)
    assert result.exception.reason == "speculates"
    assert f"plain: {speculative}: this server speculates" in str(result.exception)


def test_a_speculative_server_that_does_not_speculate_is_refused(plain):
    result = sweep("--plain", plain, "--speculative", plain, "--concurrency", "1", *QUICK)
    assert isinstance(result.exception, TargetError)
    assert result.exception.reason == "no_speculation"


def test_servers_it_starts_are_compared_in_one_table_and_stopped(tmp_path):
    two = ("--speculative-config", NGRAM, "--speculative-config", NGRAM.replace("4", "2"))
    result = sweep(
        "--model", "tiny", *two, "--vllm-command", STAND_IN, "--log-dir", str(tmp_path), "--concurrency", "1", *QUICK
    )
    logs = [path.read_text() for path in sorted(tmp_path.iterdir())]
    children = [int(pid) for log in logs for pid in re.findall(r"child (\d+)", log)]
    assert result.exit_code == 0, result.output
    assert "servers one after the other" in result.stdout
    assert re.search(r"^conc\. +ngram K=4 +ngram K=2$", result.stdout, re.MULTILINE)
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["plain.log", "speculative-1.log", "speculative-2.log"]
    assert len(children) == 3
    assert not any(map(is_alive, children))


def test_a_server_that_does_not_start_is_shown_with_the_end_of_its_log(tmp_path):
    options = ("--model", "tiny", "--speculative-config", NGRAM, "--vllm-command", STAND_IN)
    result = sweep(*options, "--vllm-args", "--die", "--log-dir", str(tmp_path), "--concurrency", "1", *QUICK)
    assert isinstance(result.exception, TargetError)
    assert result.exception.reason == "not_started"
    assert "the server ended with exit code 1 while starting" in str(result.exception)
    assert str(result.exception).endswith("  CUDA out of memory")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_sweep_that_is_killed_leaves_no_server_behind(tmp_path, number):
    options = ["--model", "tiny", "--speculative-config", NGRAM, "--vllm-command", STAND_IN, "--log-dir", str(tmp_path)]
    command = [sys.executable, "-c", "from monitor.cli import main; main()", "sweep", *options]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    log = tmp_path / "plain.log"
    child = eventually(lambda: log.exists() and re.search(r"child (\d+)", log.read_text()))
    os.kill(process.pid, number)
    process.wait(30)
    assert eventually(lambda: not is_alive(int(child[1])))


def eventually(look, seconds: float = 30):
    """What `look` finds as soon as it is true."""
    deadline = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.05)
    return found


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ((), "give ROUTE, or --plain and --speculative, or --model and --speculative-config"),
        (("--plain", "http://127.0.0.1:1"), "--plain and --speculative are given together"),
        (("--model", "m"), "--model and --speculative-config are given together"),
        (("--model", "m", "--speculative-config", "{"), "is not JSON"),
        (("--model", "m", "--speculative-config", "{}"), "is no object with num_speculative_tokens"),
        (("r", "--concurrency", "1,x"), "'1,x' is not a list of numbers"),
        (("r", "--concurrency", "0"), "a concurrency is a number from 1 to 1024"),
    ],
)
def test_wrong_options_are_refused(arguments, complaint):
    result = sweep(*arguments)
    assert result.exit_code == 2
    assert complaint in result.output


def test_a_command_that_is_not_there_is_named(tmp_path):
    options = ("--model", "m", "--speculative-config", NGRAM, "--vllm-command", "no-such-command")
    result = sweep(*options, "--log-dir", str(tmp_path))
    assert isinstance(result.exception, UsageError)
    assert "no-such-command: No such file or directory; a sweep that starts its servers needs vLLM" in str(
        result.exception
    )


def test_a_route_is_swept_against_its_plain_twin_and_kept(plain, speculative, tmp_path, database):
    (tmp_path / "routes.yaml").write_text(
        f"routes: [{{name: chat, replicas: ['{speculative}'], plain_twin: '{plain}', domains: [math]}}]"
    )
    (tmp_path / "alerting.yaml").write_text(
        "rules: [{name: d, metric: acceptance_length, drop: 15%, severity: page}]\nreceivers: [{name: log, log: {}}]\n"
    )
    environment = {
        "SPECWATCH_CONFIG": str(tmp_path),
        "DATABASE_URL": database.url.render_as_string(hide_password=False),
    }
    made = sweep("chat", "--save", "--concurrency", "1", *QUICK, "--format", "json", **environment)
    (document,) = json.loads(made.stdout)
    listed = CliRunner().invoke(cli, ["sweeps", "--route", "chat", "--format", "json"], env=environment)
    (kept,) = json.loads(listed.stdout)
    shown = CliRunner().invoke(cli, ["sweeps", str(kept["id"])], env=environment)
    assert (kept["route"], kept["model"]) == ("chat", "tiny")
    assert {**document, "id": kept["id"], "route": "chat"} == kept
    assert "crossover: " in shown.stdout
    unknown = CliRunner().invoke(cli, ["sweeps", "999999"], env=environment)
    assert isinstance(unknown.exception, UsageError)


def test_a_sweep_without_a_valid_point_says_that_nothing_was_measured_and_is_kept_as_that(plain, database):
    environment = {"DATABASE_URL": database.url.render_as_string(hide_password=False)}
    with SimulatedServer(behaviour=BATCHES_COST).run_in_thread() as failing, httpx.Client() as client:
        client.post(f"{failing}/_sim", json={"fault": {"kind": "abort", "times": 100_000}}).raise_for_status()
        made = sweep("--plain", plain, "--speculative", failing, "--save", "--concurrency", "1", *QUICK, **environment)
    assert isinstance(made.exception, TargetError)
    assert (made.exception.exit_code, made.exception.reason) == (13, "aborted")
    why = "0 of 24 prompts valid on the speculative server"
    assert str(made.exception) == f"no point of {failing} could be measured: {why}"
    assert "concurrency 1 cannot be measured: " in made.stderr
    kept = f"nothing was measured of {failing}, and why not is kept as sweep 1; see 'specwatch sweeps 1'\n"
    assert kept in made.stderr
    told = "nothing was measured: no point is valid (aborted)"
    assert f"\n{told}\n" in made.stdout
    listed = CliRunner().invoke(cli, ["sweeps"], env=environment).stdout
    assert told in listed
    assert max(map(len, listed.splitlines())) <= 100


def test_one_of_several_servers_without_a_valid_point_is_named_and_the_curves_of_the_others_are_shown(
    plain, speculative
):
    with SimulatedServer(behaviour=BATCHES_COST).run_in_thread() as failing, httpx.Client() as client:
        client.post(f"{failing}/_sim", json={"fault": {"kind": "abort", "times": 100_000}}).raise_for_status()
        servers = ("--plain", plain, "--speculative", speculative, "--speculative", failing)
        made = sweep(*servers, "--concurrency", "1", *QUICK)
    assert isinstance(made.exception, TargetError)
    assert str(made.exception).startswith(f"no point of {failing} could be measured: ")
    assert "crossover: none in range" in made.stdout


def test_a_route_without_a_plain_twin_is_told_so(tmp_path):
    (tmp_path / "routes.yaml").write_text("routes: [{name: chat, replicas: ['http://127.0.0.1:1']}]")
    (tmp_path / "alerting.yaml").write_text(
        "rules: [{name: d, metric: acceptance_length, drop: 15%, severity: page}]\nreceivers: [{name: log, log: {}}]\n"
    )
    assert "route chat has no plain_twin" in str(sweep("chat", SPECWATCH_CONFIG=str(tmp_path)).exception)
    unknown = sweep("chut", SPECWATCH_CONFIG=str(tmp_path)).exception
    assert str(unknown) == f"there is no route chut in {tmp_path / 'routes.yaml'}; there are: chat"
