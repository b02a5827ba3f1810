"""`--promote`, by the command and over HTTP: a pass keeps the candidate's runs, proposes baselines and announces."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner, Result

from monitor.cli import cli
from monitor.core.records import Reason
from monitor.errors import StoreError
from monitor.service import gate_measuring
from monitor.sim.model import Drafter
from monitor.sim.server import ServerConfig, SimulatedServer
from monitor.store import baselines, gate_requests, stale
from monitor.store.bumps import list_bumps
from monitor.store.identities import last_identity
from monitor.store.runs import list_runs
from monitor.store.snapshot import snapshot
from tests.factories import ROUTE, START
from tests.integration.gate_bed import WORSE, Bed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from monitor.store.database import Database

PATH = "/api/v1/gates"
PROMOTER = {"Authorization": "Bearer pr0mote"}
BETTER = Drafter(name="next", default_acceptance=(0.9, 0.9, 0.9, 0.9))
LINK = "https://ci.example.com/42"


@pytest.fixture
def candidate() -> Iterator[str]:
    with SimulatedServer(ServerConfig(seed=1, drafter=BETTER)).run_in_thread() as url:
        yield url


@pytest.fixture
def worse() -> Iterator[str]:
    with SimulatedServer(ServerConfig(seed=1, drafter=WORSE)).run_in_thread() as url:
        yield url


@pytest.fixture
def config(tmp_path: Path, production: str) -> Path:
    settings = "domains: [math, coding], concurrency: 8, max_tokens: 48"
    (tmp_path / "routes.yaml").write_text(f"routes: [{{name: {ROUTE}, replicas: ['{production}'], {settings}}}]")
    (tmp_path / "alerting.yaml").write_text(
        "rules: [{name: d, metric: acceptance_length, drop: 15%, severity: page}]\nreceivers: [{name: log, log: {}}]\n"
    )
    return tmp_path


def specwatch(config: Path, database: Database, *arguments: str) -> Result:
    environment = {
        "SPECWATCH_CONFIG": str(config),
        "DATABASE_URL": database.url.render_as_string(hide_password=False),
    }
    return CliRunner().invoke(cli, arguments, env=environment)


def promoting(config: Path, database: Database, candidate: str, *more: str) -> Result:
    words = ("gate", ROUTE, "--candidate", candidate, "--prompts", "24", "--format", "json", "--promote", "--by", "ann")
    return specwatch(config, database, *words, *more)


def nothing_is_stored(database: Database) -> bool:
    with database.transaction() as connection:
        return not (list_runs(connection) or baselines.list_baselines(connection) or list_bumps(connection))


class TestByTheCommand:
    def test_a_pass_keeps_the_runs_proposes_baselines_and_announces_the_bump(
        self, config: Path, database: Database, production: str, candidate: str
    ) -> None:
        result = promoting(config, database, candidate, "--link", LINK)
        assert result.exit_code == 0, result.output
        promoted = json.loads(result.stdout)["promoted"]
        assert (promoted["done"], promoted["by"], promoted["link"]) == (True, "ann", LINK)
        assert [one["domain"] for one in promoted["baselines"]] == ["math", "coding"]
        assert "'specwatch baseline approve 1 2' approves them" in promoted["text"]
        with database.transaction() as connection:
            runs = list_runs(connection, ROUTE)
            made = {one["id"]: one for one in baselines.list_baselines(connection, ROUTE)}
            [bump] = list_bumps(connection, ROUTE)
        assert {(run["reason"], run["replica"], run["valid"]) for run in runs} == {("gate", candidate, True)}
        assert sorted(run["id"] for run in runs) == sorted(i for one in promoted["baselines"] for i in one["run_ids"])
        for one in promoted["baselines"]:
            proposal = made[one["id"]]
            assert (proposal["domain"], proposal["run_ids"]) == (one["domain"], one["run_ids"])
            assert (proposal["created_by"], proposal["approved_at"], proposal["prompts"]) == ("ann", None, 24)
        assert bump["announcement"] == promoted["announcement"]
        said = {name: bump["announcement"][name] for name in ("by", "link", "note")}
        assert said == {"by": "ann", "link": LINK, "note": "gate 1 passed"}
        assert bump["replicas"] == [production]

    def test_the_kept_gate_and_its_reports_say_what_was_promoted(
        self, config: Path, database: Database, candidate: str
    ) -> None:
        printed = json.loads(promoting(config, database, candidate).stdout)
        kept = json.loads(specwatch(config, database, "gates", "1", "--format", "json").stdout)
        assert kept == {"id": 1, "status": "done", **printed}
        text = printed["promoted"]["text"]
        assert (
            f'name="promoted" value="{text[:20]}'
            in specwatch(config, database, "gates", "1", "--format", "junit").stdout
        )
        assert (
            "- promoted: the bump is announced"
            in specwatch(config, database, "gates", "1", "--format", "markdown").stdout
        )
        assert "promoted" in specwatch(config, database, "gates", "1").stdout

    def test_what_does_not_serve_yet_is_neither_what_runs_now_nor_the_route_measured(
        self, config: Path, database: Database, candidate: str
    ) -> None:
        assert promoting(config, database, candidate).exit_code == 0
        with database.transaction() as connection:
            assert snapshot(connection).valid_runs == []
            assert last_identity(connection, ROUTE, candidate) is None
            assert stale.last_finished(connection, [(ROUTE, "math")], valid_only=True) == {(ROUTE, "math"): None}
            assert stale.measured(connection, ROUTE, "math").last_valid_run_id is None
            assert baselines.last_valid_runs(connection, ROUTE, "math", 10) == []

    def test_a_fail_promotes_nothing_and_says_so_also_when_it_is_waived(
        self, config: Path, database: Database, worse: str
    ) -> None:
        result = promoting(config, database, worse)
        promoted = json.loads(result.stdout)["promoted"]
        assert (result.exit_code, promoted["done"], promoted["baselines"]) == (10, False, [])
        assert promoted["text"] == "nothing: only a gate that passed and is kept promotes"
        waive = ("gate", "waive", "1", "--by", "ann", "--reason", "drill", "--until", "7d")
        assert specwatch(config, database, *waive).exit_code == 0
        assert nothing_is_stored(database)

    def test_without_it_a_pass_promotes_nothing(self, config: Path, database: Database, candidate: str) -> None:
        words = ("gate", ROUTE, "--candidate", candidate, "--prompts", "24", "--format", "json")
        result = specwatch(config, database, *words)
        assert (result.exit_code, json.loads(result.stdout)["promoted"]) == (0, None)
        assert nothing_is_stored(database)

    def test_what_breaks_half_way_leaves_neither_a_verdict_nor_a_promotion(
        self, config: Path, database: Database, candidate: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def broken(*_: object, **__: object) -> None:
            raise StoreError("the database went away")

        monkeypatch.setattr("monitor.service.promoting.announce", broken)
        result = promoting(config, database, candidate)
        assert isinstance(result.exception, StoreError)
        told = json.loads(result.stdout)
        assert (told["verdict"], told["promoted"]["done"]) == ("pass", False)
        assert nothing_is_stored(database)
        [kept] = json.loads(specwatch(config, database, "gates", "--format", "json").stdout)
        assert (kept["status"], kept["verdict"], kept["promoted"]["done"]) == ("running", None, False)

    def test_the_same_link_is_one_announcement_however_often_it_passes(
        self, config: Path, database: Database, candidate: str
    ) -> None:
        first, second = (
            json.loads(promoting(config, database, candidate, "--link", LINK).stdout)["promoted"] for _ in range(2)
        )
        assert first["announcement"] == second["announcement"]
        assert {one["id"] for one in first["baselines"]}.isdisjoint(one["id"] for one in second["baselines"])

    def test_another_candidate_of_the_same_link_is_another_announcement_also_without_fingerprints(
        self, config: Path, database: Database
    ) -> None:
        announcements = []
        for version in ("0.33.0", "0.34.0"):
            server = SimulatedServer(ServerConfig(seed=1, drafter=BETTER, version=version))
            server.fingerprint = ""
            with server.run_in_thread() as url:
                found = json.loads(promoting(config, database, url, "--link", LINK).stdout)
            assert found["candidate"]["identity"]["fingerprint"] is None
            announcements.append(found["promoted"]["announcement"])
        assert [one["candidate"]["version"] for one in announcements] == ["0.33.0", "0.34.0"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--against", "http://y", "--promote", "--by", "ann"], "--promote is of a route"),
        ([ROUTE, "--promote"], "say --by NAME"),
        ([ROUTE, "--link", LINK], "say --promote with them"),
        ([ROUTE, "--promote", "--by", "ann", "--link", "javascript:alert(1)"], "is not a link; write for example"),
    ],
)
def test_a_promotion_that_cannot_be_is_wrong_usage(arguments: list[str], words: str) -> None:
    result = CliRunner().invoke(cli, ["gate", *arguments, "--candidate", "http://x"])
    assert (result.exit_code, words in result.output) == (2, True), result.output


class TestOverHttp:
    def asked(self, candidate: str, **options: Any) -> dict[str, Any]:
        return {"route": ROUTE, "candidate": candidate, "prompts": 24, "promote": True, **options}

    async def test_a_pass_promotes_in_the_name_of_its_token(self, bed: Bed, candidate: str) -> None:
        queued = (await bed.client.post(PATH, json=self.asked(candidate, link=LINK), headers=PROMOTER)).json()
        assert (queued["promoted"]["done"], queued["promoted"]["by"]) == (False, "release")
        await bed.work(1)
        gate = bed.gate(1)
        promoted = gate["promoted"]
        assert (gate["verdict"], promoted["done"], promoted["by"], promoted["link"]) == ("pass", True, "release", LINK)
        with bed.database.transaction() as connection:
            [proposal] = baselines.list_baselines(connection, ROUTE)
            [bump] = list_bumps(connection, ROUTE)
            runs = list_runs(connection, ROUTE)
        assert (proposal["id"], proposal["approved_at"]) == (promoted["baselines"][0]["id"], None)
        assert bump["announcement"] == promoted["announcement"]
        assert {run["reason"] for run in runs} == {Reason.GATE.value}

    async def test_a_fail_promotes_nothing(self, bed: Bed, worse: str) -> None:
        await bed.client.post(PATH, json=self.asked(worse, by="ann"), headers=PROMOTER)
        await bed.work(1)
        assert (bed.gate(1)["verdict"], bed.gate(1)["promoted"]["done"]) == ("fail", False)
        assert (bed.gate(1)["promoted"]["by"], nothing_is_stored(bed.database)) == ("ann", True)

    async def test_one_that_was_cancelled_under_it_promotes_nothing(
        self, bed: Bed, candidate: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        measure = gate_measuring.run_gate

        async def measured(*sides: Any, **told: Any) -> Any:
            verdict = await measure(*sides, **told)
            with bed.database.transaction() as connection:
                gate_requests.cancel(connection, 1, "ann", START)
            return verdict

        monkeypatch.setattr("monitor.service.gate_measuring.run_gate", measured)
        await bed.client.post(PATH, json=self.asked(candidate), headers=PROMOTER)
        await bed.work(1)
        gate = bed.gate(1)
        assert (gate["status"], gate["promoted"]["done"]) == ("cancelled", False)
        assert nothing_is_stored(bed.database)

    async def test_a_token_that_may_not_announce_may_not_promote(self, bed: Bed, candidate: str) -> None:
        answer = await bed.client.post(PATH, json=self.asked(candidate))
        assert (answer.status_code, bed.queued()) == (403, [])
        assert "token ci lacks the scope bump" in answer.json()["error"]

    async def test_who_or_where_without_a_promotion_is_refused(self, bed: Bed, candidate: str) -> None:
        answer = await bed.client.post(PATH, json=self.asked(candidate, promote=False, by="ann"), headers=PROMOTER)
        assert (answer.status_code, bed.queued()) == (400, [])
        assert "by and link are of a promotion" in answer.json()["error"]

    async def test_flagger_can_ask_for_it_in_its_metadata(self, bed: Bed, candidate: str) -> None:
        metadata = {"route": ROUTE, "candidate": candidate, "prompts": "24", "promote": "true"}
        sent = {"name": "chat", "namespace": "prod", "checksum": "1", "metadata": metadata}
        assert (await bed.client.post("/api/v1/flagger", json=sent, headers=PROMOTER)).status_code == 409
        await bed.work(1)
        assert bed.gate(1)["promoted"]["done"]
        assert (await bed.client.post("/api/v1/flagger", json=sent, headers=PROMOTER)).status_code == 200
