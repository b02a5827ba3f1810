"""`specwatch gate`, against simulated servers over real HTTP: who passes, who does not, and every reason in between."""

from __future__ import annotations

import json
import re
import threading
import time
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner, Result
from sqlalchemy import text

from monitor.cli import cli
from monitor.core.gate import GateReason
from monitor.errors import ConfigError, StoreError, UsageError
from monitor.probing.replay import replay
from monitor.prompts.sets import bundled_directory, load_prompt_sets
from monitor.sim.behaviour import Behaviour, Fault, FaultKind
from monitor.sim.domains import domains_in
from monitor.sim.model import Drafter
from monitor.sim.server import ServerConfig, SimulatedServer
from monitor.store import approvals, baselines, gate_requests, queue
from monitor.store.gates import get_gate
from monitor.store.runs import store_run
from tests.factories import START, make_run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from types import ModuleType

    from monitor.store.database import Database

QUICK = ("--prompts", "24", "--max-tokens", "48", "--concurrency", "8")
WORSE = Drafter(name="worse", default_acceptance=(0.5, 0.5, 0.5, 0.5))


@pytest.fixture
def production_server() -> SimulatedServer:
    return SimulatedServer()


@pytest.fixture
def production(production_server: SimulatedServer) -> Iterator[str]:
    with production_server.run_in_thread() as url:
        yield url


@pytest.fixture
def candidate_server() -> SimulatedServer:
    return SimulatedServer(ServerConfig(seed=1))


@pytest.fixture
def candidate(candidate_server: SimulatedServer) -> Iterator[str]:
    with candidate_server.run_in_thread() as url:
        yield url


def gate(candidate: str, against: str, *arguments: str, domains: tuple[str, ...] = ("math",)) -> Result:
    chosen = [word for domain in domains for word in ("--domain", domain)]
    words = ["gate", "--candidate", candidate, "--against", against, *chosen, *QUICK, *arguments]
    return CliRunner().invoke(cli, words)


def document(result: Result) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(result.stdout)
    assert result.exit_code == found["exit_code"], result.output
    return found


def test_a_candidate_like_production_passes_and_the_equal_identities_are_said(production: str, candidate: str) -> None:
    found = document(gate(candidate, production, "--format", "json", domains=("math", "coding")))
    assert (found["verdict"], found["reason"], found["exit_code"]) == ("pass", "no_regression", 0)
    assert found["difference"].startswith("nothing that the servers show; ")
    assert (found["prompts_valid"], found["prompts_total"]) == (48, 48)
    for domain in found["domains"]:
        assert (domain["verdict"], domain["source"], domain["pairs"]) == ("pass", "request", 2)
        assert domain["change_interval"][0] > -0.10
        assert len(domain["prompt_set_hash"]) == 64
    assert found["mix"]["verdict"] == "pass"
    assert found["thresholds"]["max_drop"] == 0.10


def test_a_worse_drafter_is_a_regression_that_exits_with_10(production: str) -> None:
    with SimulatedServer(ServerConfig(drafter=WORSE)).run_in_thread() as candidate:
        result = gate(candidate, production, "--format", "json")
    found = document(result)
    assert (result.exit_code, found["verdict"], found["reason"]) == (10, "fail", "regression")
    assert found["domains"][0]["change_interval"][1] < -0.10
    assert found["identity_changes"].keys() == {"fingerprint"}
    worst, *_, best = (prompt["change"] for prompt in found["domains"][0]["per_prompt"])
    assert worst < best < 0
    assert "math: -3" in result.stderr


def test_a_drop_near_the_line_takes_more_pairs(production: str, candidate_server: SimulatedServer) -> None:
    candidate_server.swap_drafter(Drafter(default_acceptance=(0.70, 0.65, 0.65, 0.65)))
    with candidate_server.run_in_thread() as candidate:
        found = document(gate(candidate, production, "--max-drop", "12%", "--format", "json"))
    assert len(found["domains"][0]["looks"]) >= 1
    pairs = [look["pairs"] for look in found["domains"][0]["looks"]]
    assert pairs == list(range(2, 2 + len(pairs)))


@pytest.mark.parametrize("off", ["candidate", "reference"])
def test_speculation_off_on_either_side_has_its_own_reason(off: str, production: str) -> None:
    with SimulatedServer(ServerConfig(drafter=Drafter(method=None))).run_in_thread() as plain:
        sides = (plain, production) if off == "candidate" else (production, plain)
        result = gate(*sides, "--format", "json", domains=("math", "coding"))
    found = document(result)
    assert (result.exit_code, found["reason"]) == (13, f"{off}_no_speculation")
    assert {domain["reason"] for domain in found["domains"]} == {f"{off}_no_speculation"}
    assert found["text"].startswith(f"math: {off}: http://127.0.0.1")


def test_a_candidate_that_dies_half_way_is_not_measurable(production: str, candidate_server: SimulatedServer) -> None:
    with candidate_server.run_in_thread() as candidate:
        candidate_server.inject(Fault(FaultKind.CUT, times=None))
        result = gate(candidate, production, "--format", "json", domains=("math", "coding"))
    found = document(result)
    assert (result.exit_code, found["verdict"], found["reason"]) == (13, "not_measurable", "unreachable")
    assert found["domains"][1]["pairs"] is None


def test_a_candidate_that_is_stopped_between_domains_is_not_measurable(production: str) -> None:
    server, stack = SimulatedServer(behaviour=Behaviour(step_time_seconds=0.01)), ExitStack()
    candidate = stack.enter_context(server.run_in_thread())
    gone = threading.Timer(1.0, stack.close)
    gone.start()
    result = gate(candidate, production, "--format", "json", "--timeout", "60s", domains=("math", "coding", "qa"))
    gone.join()
    found = document(result)
    assert (result.exit_code, found["reason"]) == (13, "unreachable")
    assert "candidate: http://127.0.0.1" in found["text"]


def test_a_candidate_that_nobody_answers_at_is_unreachable_before_anything_is_replayed(production: str) -> None:
    found = document(gate("http://127.0.0.1:9", production, "--format", "json"))
    assert (found["exit_code"], found["reason"], found["domains"]) == (13, "unreachable", [])
    assert found["candidate"]["identity"] is None
    assert found["reference"]["identity"]["model"] == "tiny"


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_the_very_same_server_is_refused_by_whatever_name(host: str, production: str) -> None:
    result = gate(production.replace("127.0.0.1", host), production, "--format", "json")
    assert (result.exit_code, document(result)["reason"]) == (13, "same_server")


def test_another_model_is_refused_unless_it_is_named(production: str) -> None:
    with SimulatedServer(ServerConfig(model="tiny-v2", seed=1)).run_in_thread() as candidate:
        refused = document(gate(candidate, production, "--format", "json"))
        named = document(gate(candidate, production, "--candidate-model", "tiny-v2", "--format", "json"))
    assert (refused["exit_code"], refused["reason"]) == (13, "other_model")
    assert (named["exit_code"], named["identity_changes"]["model"]) == (0, ["tiny", "tiny-v2"])
    assert "model tiny → tiny-v2" in named["difference"]


def test_a_gate_without_enough_time_says_so_at_its_first_look(production: str) -> None:
    slow = SimulatedServer(ServerConfig(seed=1), Behaviour(step_time_seconds=0.01))
    with slow.run_in_thread() as candidate:
        words = ("--timeout", "12s", "--format", "json")
        result = gate(candidate, production, *words, domains=tuple(sorted(load_prompt_sets(bundled_directory()))))
    first = result.stderr.splitlines()[0]
    told = re.fullmatch(r".*no_regression; about (\d+) s left, (\d+) s more than --timeout allows", first)
    assert told is not None, first
    assert 0 < int(told[2]) < int(told[1])
    assert document(result)["reason"] == "timed_out"


def test_a_time_out_never_passes_and_says_what_would_do(production: str) -> None:
    slow = SimulatedServer(ServerConfig(seed=1), Behaviour(step_time_seconds=0.01))
    with slow.run_in_thread() as candidate:
        found = document(gate(candidate, production, "--timeout", "2s", "--format", "json", domains=()))
    assert (found["exit_code"], found["verdict"], found["reason"]) == (11, "inconclusive", "timed_out")
    assert "--timeout" in found["text"]
    assert {domain["verdict"] for domain in found["domains"]} >= {"inconclusive"}
    assert len(found["domains"]) == 11


def test_counts_of_different_sources_are_not_compared(production: str) -> None:
    with SimulatedServer(ServerConfig(seed=1, per_request_counts="none")).run_in_thread() as candidate:
        mixed = document(gate(candidate, production, "--format", "json"))
        alike = document(gate(candidate, production, "--source", "stream", "--format", "json"))
    assert (mixed["exit_code"], mixed["reason"]) == (12, "not_comparable")
    assert "source stream of the candidate, request of the reference" in mixed["text"]
    assert (alike["exit_code"], alike["domains"][0]["source"]) == (0, "stream")


@contextmanager
def other_users(server: SimulatedServer) -> Iterator[None]:
    """Whom else the server answers, all the while."""
    over = threading.Event()

    def visit() -> None:
        while not over.wait(0.005):
            server.traffic(max_tokens=64)

    visits = threading.Thread(target=visit)
    visits.start()
    try:
        yield
    finally:
        over.set()
        visits.join()


@pytest.mark.parametrize("side", ["candidate", "reference"])
def test_counters_that_others_moved_are_contaminated_and_never_a_pass(side: str) -> None:
    """The very servers that pass while they are quiet."""
    slow = Behaviour(step_time_seconds=0.002)
    servers = {"reference": SimulatedServer(behaviour=slow), "candidate": SimulatedServer(ServerConfig(seed=1), slow)}
    words = ("--source", "counters", "--format", "json")
    with servers["reference"].run_in_thread() as production, servers["candidate"].run_in_thread() as candidate:
        quiet = document(gate(candidate, production, *words))
        with other_users(servers[side]):
            shared = document(gate(candidate, production, *words, domains=("math", "coding")))
    assert (quiet["exit_code"], quiet["reason"], quiet["domains"][0]["source"]) == (0, "no_regression", "counters")
    assert (shared["exit_code"], shared["verdict"], shared["reason"]) == (13, "not_measurable", "contaminated")
    assert [domain["reason"] for domain in shared["domains"]] == ["contaminated", "contaminated"]
    assert shared["text"].startswith(f"math: {side}: http://127.0.0.1")
    assert "tokens for others beside our" in shared["text"]
    assert "use source request or stream" in shared["text"]


def test_too_few_valid_prompts_are_no_measurement(production: str, candidate_server: SimulatedServer) -> None:
    with candidate_server.run_in_thread() as candidate:
        candidate_server.inject(Fault(FaultKind.NO_USAGE, times=2))
        found = document(gate(candidate, production, "--min-prompts", "24", "--format", "json"))
    assert (found["exit_code"], found["reason"]) == (13, "too_few_prompts")


def test_a_candidate_restarted_under_the_gate_is_told(production: str, candidate_server: SimulatedServer) -> None:
    candidate_server.behave(step_time_seconds=0.005)
    with candidate_server.run_in_thread() as candidate:
        swap = threading.Timer(1.0, candidate_server.swap_drafter, [Drafter(name="other")])
        swap.start()
        found = document(gate(candidate, production, "--format", "json", domains=("math", "coding", "qa", "stem")))
        swap.join()
    assert found["exit_code"] == 13
    assert found["reason"] in {"identity_changed", "unreachable"}


def test_a_candidate_restarted_after_its_last_look_is_not_the_one_that_passed(
    production: str, candidate_server: SimulatedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As what it was, so that only its start tells."""
    made: list[Any] = []

    async def replayed(*given: Any, **options: Any) -> Any:
        made.append(await replay(*given, **options))
        if len(made) == 4:
            candidate_server.restart()
        return made[-1]

    monkeypatch.setattr("monitor.probing.gate.replay", replayed)
    with candidate_server.run_in_thread() as candidate:
        found = document(gate(candidate, production, "--format", "json"))
    assert (found["exit_code"], found["reason"], len(made)) == (13, "identity_changed", 4)
    assert found["text"] == "math: candidate: the server was restarted during the gate"
    assert found["domains"][0]["change"] is not None


def test_a_file_that_cannot_be_written_is_refused_before_anything_is_measured(tmp_path: Path) -> None:
    file = tmp_path / "missing" / "gate.json"
    result = gate("http://127.0.0.1:9", "http://127.0.0.1:8", "--format", "json", "--out", str(file))
    assert (isinstance(result.exception, UsageError), result.stdout) == (True, "")
    assert str(result.exception) == (
        f"cannot write {file}: {file.parent} is no directory that may be written in; name another file"
    )


def test_junit_has_a_typed_case_for_every_domain(production: str, tmp_path: Path) -> None:
    file = tmp_path / "gate.xml"
    fallen = Drafter(acceptance={"math": (0.4, 0.4, 0.4, 0.4)})
    server = SimulatedServer(ServerConfig(drafter=fallen, domains=domains_in(bundled_directory())))
    with server.run_in_thread() as candidate:
        result = gate(candidate, production, "--format", "junit", "--out", str(file), domains=("math", "coding"))
    suite = ElementTree.parse(file).getroot().find("testsuite")
    assert suite is not None
    assert {name: suite.get(name) for name in ("tests", "failures", "errors", "skipped")} == {
        "tests": "3", "failures": suite.get("failures"), "errors": "0", "skipped": "0",
    }  # fmt: skip
    cases = {case.get("name"): case for case in suite.findall("testcase")}
    assert list(cases) == ["math", "coding", "mix"]
    failure = cases["math"].find("failure")
    assert failure is not None
    assert failure.get("type") == "regression"
    assert cases["coding"].find("failure") is None
    assert result.stdout.startswith("FAIL (regression): math: ")


def test_markdown_has_a_row_for_every_domain_and_the_mix(production: str, candidate: str) -> None:
    lines = gate(candidate, production, "--format", "markdown", domains=("math", "coding")).stdout.splitlines()
    assert lines[0] == "### Specwatch gate: pass"
    rows = [line for line in lines if line.startswith("| ")]
    assert [row.split("|")[1].strip() for row in rows] == ["domain", "---", "math", "coding", "mix"]
    assert len({row.count("|") for row in rows}) == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--candidate", "http://x"], "without ROUTE, name the server"),
        (["--candidate", "nonsense", "--against", "http://x"], "not a server's address"),
        (["--candidate", "http://x", "--against", "http://y", "--max-drop", "10"], "did you mean 10%"),
        (["--candidate", "http://x", "--against", "http://y", "--timeout", "soon"], "is not a duration"),
        (["--candidate", "http://x", "--against", "http://y", "--prompts", "12", "--min-prompts", "24"], "less than"),
        (["--candidate", "http://x", "--against", "http://y", "--domain", "nonsense"], "no domain 'nonsense'"),
        (["chat", "--candidate", "http://x", "--max-tokens", "5"], "--max-tokens is for a gate without ROUTE"),
    ],
)
def test_wrong_usage_exits_with_2_and_says_what_is_allowed(arguments: list[str], words: str) -> None:
    result = CliRunner().invoke(cli, ["gate", *arguments])
    assert (result.exit_code, words in result.output) == (2, True), result.output


class TestOfARoute:
    """With a route the verdict is kept."""

    @pytest.fixture
    def config(self, tmp_path: Path, production: str) -> Path:
        settings = "domains: [math], concurrency: 8, max_tokens: 48"
        (tmp_path / "routes.yaml").write_text(f"routes: [{{name: chat, replicas: ['{production}'], {settings}}}]")
        (tmp_path / "alerting.yaml").write_text(
            "rules: [{name: d, metric: acceptance_length, drop: 15%, severity: page}]\n"
            "receivers: [{name: log, log: {}}]\n"
        )
        return tmp_path

    def specwatch(self, config: Path, database: Database, *arguments: str) -> Result:
        environment = {
            "SPECWATCH_CONFIG": str(config),
            "DATABASE_URL": database.url.render_as_string(hide_password=False),
        }
        return CliRunner().invoke(cli, arguments, env=environment)

    def test_it_is_compared_with_production_and_shown_again(
        self, config: Path, database: Database, candidate: str
    ) -> None:
        result = self.specwatch(config, database, "gate", "chat", "--candidate", candidate, "--format", "json")
        found = document(result)
        assert (found["exit_code"], found["route"], found["against"]) == (0, "chat", "production")
        assert "kept as gate 1; see 'specwatch gates 1'" in result.stderr
        kept = json.loads(self.specwatch(config, database, "gates", "1", "--format", "json").stdout)
        assert kept == {"id": 1, "status": "done", **found}
        listed = self.specwatch(config, database, "gates").stdout
        assert "pass" in listed
        assert candidate in listed

    def test_it_waits_for_the_gate_that_measures_one_of_its_servers_and_says_which(
        self, config: Path, database: Database, production: str, candidate: str
    ) -> None:
        with database.transaction() as connection:
            other = gate_requests.ask(connection, {}, {"route": "chat"}, "ci", None).id
            gate_requests.claim(connection, other, ["http://other:8000", production], START)
        with self.once_seen(gate_requests, "holder", lambda: self.end(database, other)):
            result = self.specwatch(config, database, "gate", "chat", "--candidate", candidate, "--format", "json")
        assert document(result)["reason"] == "no_regression"
        assert f"gate 2 waits: gate 1 of route chat, asked by ci, measures {production}\n" in result.stderr

    @contextmanager
    def once_seen(self, module: ModuleType, name: str, then: Callable[[], None]) -> Iterator[None]:
        """After the first look of that name, and not before."""
        seen = threading.Event()
        look = getattr(module, name)

        def looked(*given: Any) -> Any:
            found = look(*given)
            seen.set()
            return found

        waiting = threading.Thread(target=lambda: (seen.wait(60), then()))
        waiting.start()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, name, looked)
            yield
        waiting.join()

    def end(self, database: Database, gate_id: int) -> None:
        with database.transaction() as connection:
            assert gate_requests.give_up(connection, gate_id, GateReason.INTERRUPTED, "the test ends it", START)

    def test_a_gate_that_ends_between_two_looks_is_no_turn_until_its_servers_are_claimed(
        self, config: Path, database: Database, production: str, candidate: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with database.transaction() as connection:
            other = gate_requests.begin(connection, {"route": "chat"})
            gate_requests.claim(connection, other, [production], START)
        holder = gate_requests.holder

        def just_ended(*given: Any) -> str | None:
            self.end(database, other)
            return holder(*given)

        monkeypatch.setattr(gate_requests, "holder", just_ended)
        result = self.specwatch(config, database, "gate", "chat", "--candidate", candidate, "--format", "json")
        assert document(result)["reason"] == "no_regression"
        assert "gate 2 waits: another gate has just measured them\n" in result.stderr
        with database.transaction() as connection:
            [claimed] = connection.execute(text("SELECT servers FROM gates WHERE id = 2")).scalars()
        assert claimed == [candidate, production]

    def test_a_mistake_while_it_is_watched_is_no_pass(
        self, config: Path, database: Database, candidate: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def broken(*_: object) -> bool:
            raise ZeroDivisionError

        monkeypatch.setattr("monitor.service.gate_measuring._renew", broken)
        monkeypatch.setattr("monitor.service.gate_measuring.LOOK_EVERY_SECONDS", 0.01)
        result = self.specwatch(config, database, "gate", "chat", "--candidate", candidate, "--format", "json")
        assert isinstance(result.exception, ZeroDivisionError)
        kept = json.loads(self.specwatch(config, database, "gates", "1", "--format", "json").stdout)
        assert (kept["status"], kept["verdict"], kept["reason"]) == ("done", "inconclusive", "interrupted")

    def test_without_a_turn_within_its_time_out_it_is_undecided_and_asks_nobody(
        self, config: Path, database: Database, production_server: SimulatedServer, production: str, candidate: str
    ) -> None:
        with database.transaction() as connection:
            other = gate_requests.begin(connection, {"route": "chat"})
            gate_requests.claim(connection, other, [production], START)
        words = ("gate", "chat", "--candidate", candidate, "--timeout", "1s", "--format", "json")
        found = document(self.specwatch(config, database, *words))
        assert (found["exit_code"], found["reason"], found["domains"]) == (11, "timed_out", [])
        assert found["text"].startswith(
            f"not measured within 1 s: gate 1 of route chat, of the command, measures {production}"
        )
        kept = json.loads(self.specwatch(config, database, "gates", "2", "--format", "json").stdout)
        assert (kept["status"], kept["verdict"]) == ("done", "inconclusive")

    def test_while_it_is_measured_its_servers_are_claimed_and_cancelling_it_ends_it(
        self,
        config: Path,
        database: Database,
        production: str,
        candidate_server: SimulatedServer,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr("monitor.service.gate_measuring.LOOK_EVERY_SECONDS", 0.05)
        candidate_server.behave(step_time_seconds=0.05)
        seen: list[Any] = []

        def look() -> None:
            """Once it is under way."""
            while not seen:
                time.sleep(0.05)
                with database.transaction() as connection:
                    if gate_requests.is_measured(connection, candidate):
                        seen.append(gate_requests.is_measured(connection, production))
                        seen.append((get_gate(connection, 1) or {})["status"])
                        gate_requests.cancel(connection, 1, "ann", START)

        with candidate_server.run_in_thread() as candidate:
            looked = threading.Thread(target=look, daemon=True)
            looked.start()
            words = ("gate", "chat", "--candidate", candidate, "--timeout", "60s", "--format", "json")
            result = self.specwatch(config, database, *words)
            looked.join(10)
        assert seen == [True, "running"]
        found = document(result)
        assert (found["exit_code"], found["reason"], found["text"]) == (11, "cancelled", "cancelled by ann")

    def test_it_waits_for_the_probe_that_is_being_made_on_its_server(
        self, config: Path, database: Database, production: str, candidate: str
    ) -> None:
        lock = f"replica {production}"
        with database.transaction() as connection:
            worker = connection.execute(text("INSERT INTO procrastinate_workers DEFAULT VALUES RETURNING id")).scalar()
            connection.execute(
                text(
                    "INSERT INTO procrastinate_jobs (task_name, queue_name, status, lock, worker_id, attempts) "
                    "VALUES ('probe', 'probes', 'doing', :lock, :worker, 1)"
                ),
                {"lock": lock, "worker": worker},
            )

        def over() -> None:
            with database.transaction() as connection:
                connection.execute(text("DELETE FROM procrastinate_jobs"))

        with self.once_seen(queue, "probed_servers", over):
            result = self.specwatch(config, database, "gate", "chat", "--candidate", candidate, "--format", "json")
        assert document(result)["exit_code"] == 0
        assert f"gate 1 waits: a probe is being made on {production}\n" in result.stderr

    def test_a_gate_whose_command_died_is_ended_by_the_next_and_is_no_pass(
        self, config: Path, database: Database, production: str, candidate: str
    ) -> None:
        with database.transaction() as connection:
            left = gate_requests.begin(connection, {"route": "chat"})
            gate_requests.claim(connection, left, [production, candidate], START)
            connection.execute(text("UPDATE gates SET lease_until = now() - interval '6 minutes'"))
        assert self.specwatch(config, database, "gate", "chat", "--candidate", candidate).exit_code == 0
        ended = json.loads(self.specwatch(config, database, "gates", str(left), "--format", "json").stdout)
        assert (ended["status"], ended["verdict"], ended["reason"]) == ("done", "inconclusive", "interrupted")
        assert ended["text"] == "the command that measured it ended without a word"

    def test_a_command_that_is_stopped_leaves_its_servers_at_once_and_its_gate_undecided(
        self, config: Path, database: Database, candidate: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def stopped(*_: object, **__: object) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr("monitor.service.gate_measuring.run_gate", stopped)
        assert self.specwatch(config, database, "gate", "chat", "--candidate", candidate).exit_code == 1
        with database.transaction() as connection:
            assert not gate_requests.is_measured(connection, candidate)
            kept = get_gate(connection, 1) or {}
        assert (kept["status"], kept["verdict"], kept["reason"]) == ("done", "inconclusive", "interrupted")
        assert kept["text"] == "the command was stopped: KeyboardInterrupt"

    def test_without_an_approved_baseline_it_exits_with_12_and_asks_nobody(
        self, config: Path, database: Database, candidate: str
    ) -> None:
        words = ("gate", "chat", "--candidate", candidate, "--against", "baseline", "--format", "json")
        found = document(self.specwatch(config, database, *words))
        assert (found["exit_code"], found["reason"]) == (12, "no_baseline")
        assert "specwatch baseline create chat" in found["text"]

    def test_it_is_held_against_the_approved_baseline(
        self, config: Path, database: Database, production: str, candidate_server: SimulatedServer
    ) -> None:
        probe = ("probe", production, "--domain", "math", "--concurrency", "8", "--max-tokens", "48")
        for _ in range(2):
            assert self.specwatch(config, database, *probe, "--save", "--route", "chat").exit_code == 0
        assert self.specwatch(config, database, "baseline", "create", "chat", "--approve").exit_code == 0
        words = ("gate", "chat", "--against", "baseline", "--format", "json", "--candidate")
        with candidate_server.run_in_thread() as candidate:
            passed = document(self.specwatch(config, database, *words, candidate))
            candidate_server.swap_drafter(WORSE)
            failed = document(self.specwatch(config, database, *words, candidate))
            candidate_server.swap_drafter(Drafter(num_speculative_tokens=3))
            other = document(self.specwatch(config, database, *words, candidate))
        assert (passed["exit_code"], passed["domains"][0]["baseline_id"]) == (0, 1)
        assert passed["reference"]["replica"] is None
        assert passed["reference"]["identity"]["model"] == "tiny"
        assert (failed["exit_code"], failed["reason"]) == (10, "regression")
        assert (other["exit_code"], other["reason"]) == (12, "not_comparable")
        assert "baseline 1: K 3 is not the baseline's 4" in other["text"]

    def test_a_baseline_of_another_prompt_set_is_a_mismatch(
        self, config: Path, database: Database, candidate: str
    ) -> None:
        with database.transaction() as connection:
            run_id = store_run(connection, "k", make_run(route="chat", domain="math", k=4))
            baseline_id = baselines.create_baseline(connection, [run_id or 0], "me", START)
            approvals.approve_baseline(connection, baseline_id, "me", "", START)
        words = ("gate", "chat", "--candidate", candidate, "--against", "baseline", "--format", "json")
        found = document(self.specwatch(config, database, *words))
        assert (found["exit_code"], found["reason"]) == (12, "prompt_set_mismatch")

    def test_a_candidate_that_is_the_only_replica_is_refused(
        self, config: Path, database: Database, production: str
    ) -> None:
        found = document(
            self.specwatch(config, database, "gate", "chat", "--candidate", production, "--format", "json")
        )
        assert (found["exit_code"], found["reason"]) == (13, "same_server")

    def test_without_its_store_or_configuration_nothing_passes(self, config: Path, candidate: str) -> None:
        arguments = ["--database-url", "postgresql://127.0.0.1:1/x", "gate", "chat", "--candidate", candidate]
        result = CliRunner().invoke(cli, arguments, env={"SPECWATCH_CONFIG": str(config)})
        assert isinstance(result.exception, StoreError)
        assert result.exception.exit_code == 3

    def test_an_unknown_route_is_wrong_usage(self, database: Database, tmp_path: Path, candidate: str) -> None:
        result = self.specwatch(tmp_path, database, "gate", "chat", "--candidate", candidate)
        assert isinstance(result.exception, ConfigError)
