"""Every figure on every surface names its source: each command in each format, each page, each message, each file."""

from __future__ import annotations

import json
from contextlib import ExitStack
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click
import httpx
import pyarrow.parquet
import pytest
from click.testing import CliRunner
from surfaces import nameless_in_csv, nameless_in_document, nameless_in_text, nameless_series

from monitor.alerting.alertmanager import webhook_body
from monitor.cli import cli
from monitor.cli.export import PROFILE, SUFFIXES
from monitor.cli.reference import commands
from monitor.core.figures import GROUPINGS
from monitor.core.format import run_line
from monitor.core.organic import Organic
from monitor.core.records import Reason, Source
from monitor.core.warm import warmed
from monitor.service.jobs import ProbeJob
from monitor.service.recording import Recorder
from monitor.sim.behaviour import Behaviour
from monitor.sim.model import Drafter
from monitor.sim.server import ServerConfig, SimulatedServer
from monitor.store import incidents, runs, verdicts
from monitor.store.organic import store_organic
from monitor.web.app import build_app
from tests.factories import DOMAIN, REPLICA, ROUTE, START, make_config, make_route, make_run

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from monitor.store.database import Database

QUICK = ("--prompts", "12", "--max-tokens", "24", "--concurrency", "6", "--domain", "math", "--domain", "coding")
CURVE = ("--prompts", "12", "--max-tokens", "24", "--repeats", "1", "--concurrency", "6")
BATCHES_COST = Behaviour(step_time_seconds=0.003, token_time_seconds=0.0005)
SHOWS_FIGURES: dict[str, list[tuple[str, ...]]] = {
    "probe": [("{speculative}", *QUICK), ("{speculative}", *QUICK, "--source", "stream")],
    "routes": [()],
    "history": [(ROUTE, "--group-by", grouping) for grouping in GROUPINGS]
    + [
        (ROUTE, "--by-context"),
        (ROUTE, "--organic"),
        (ROUTE, *(f"--metric={metric}" for metric in ("coverage", "acceptance_rate"))),
    ],
    "runs": [()],
    "run show": [("{run}",), ("1",)],
    "explain": [("--run", "{run}"), ("--incident", "{incident}"), ("1",)],
    "incidents": [(), ("{incident}",)],
    "incidents show": [("{incident}",)],
    "baseline list": [()],
    "baseline show": [("1",)],
    "baseline create": [(ROUTE, "--mixed")],
    "sweep": [("--plain", "{plain}", "--speculative", "{speculative}", "--speculative", "{speculative}", *CURVE)],
    "sweeps": [(), ("1",)],
    "reference import": [("{golden}",)],
    "reference list": [()],
    "advise": [("chat",)],
    "speedup": [(), ("chat",)],
    "compare": [("1", "2")],
    "gate run": [("--candidate", "{candidate}", "--against", "{speculative}", *QUICK)],
    "gates": [("1",)],
    "bumps": [()],
}
"""Every command that prints figures, with the ways to ask it."""
NONE = {
    "bump": "says which probes it queued",
    "serve": "its log has messages and a line for each run",
    "demo": "prints messages and a line for each run",
    "export": "prints none; its files have a test of their own",
    "run": "a group",
    "gate": "a group",
    "gate waive": "names a gate",
    "run now": "with --wait the lines of serve's log, which have a test of their own",
    "silence": "a group",
    "silence add": "names a silence",
    "silence list": "silences",
    "silence end": "names a silence",
    "incidents ack": "names an incident",
    "incidents note": "names an incident",
    "baseline": "a group",
    "baseline approve": "names baselines",
    "reference": "a group",
    "reference remove": "counts lines",
    "receivers": "a group",
    "receivers list": "who hears",
    "receivers test": "a message about nothing",
    "receivers retry": "counts messages",
    "noise": "spreads and chances, from more runs than there are here; its own test looks for the source",
    "prompts": "a group",
    "prompts list": "prompts",
    "prompts show": "prompts",
    "prompts lint": "prompts",
    "prompts import": "prompts",
    "config": "a group",
    "config check": "settings",
    "runbook": "a page of the manual",
    "prune": "counts samples",
    "db": "a group",
    "db status": "revisions",
    "db upgrade": "revisions",
}
"""Every other command, and why."""
PAGES = {"/metrics", "/incidents/{number:int}"}
PAGES_WITHOUT = {"/", "/healthz", "/readyz", "/runbook"}


class Surfaces:
    """A store with something of everything, and the program that shows it."""

    def __init__(self, database: Database, directory: Path, servers: tuple[str, str, str]) -> None:
        self.database = database
        self.config = make_config(make_route(), make_route("chat", replicas=[servers[0]], plain_twin=servers[1]))
        self.names = {
            "speculative": servers[0],
            "plain": servers[1],
            "candidate": servers[2],
            "golden": str(directory / "golden.yaml"),
        }
        (directory / "golden.yaml").write_text("some-model:\n  thinking_on:\n    3: 3.08\n", encoding="utf-8")
        route = f"name: chat, replicas: ['{servers[0]}'], plain_twin: '{servers[1]}', domains: [math, coding]"
        route += ", gpus: 2, gpu_price_per_hour: 3.0, mix: {math: 0.5, coding: 0.5}"
        (directory / "routes.yaml").write_text(f"routes: [{{{route}}}]")
        (directory / "alerting.yaml").write_text(
            "rules: [{name: d, metric: acceptance_length, drop: 15%, severity: page}]\n"
            "receivers: [{name: log, log: {}}]\n"
        )
        self.environment = {
            "SPECWATCH_CONFIG": str(directory),
            "DATABASE_URL": database.url.render_as_string(hide_password=False),
        }
        self._record()

    def measure(self) -> None:
        """A route of runs and a sweep by the commands themselves."""
        self.says("probe", "{speculative}", *QUICK, "--save", "--route", "chat")
        self.says("sweep", "chat", *CURVE, "--save")
        self.says("gate", "chat", "--candidate", "{candidate}", "--prompts", "12", "--domain", "math")

    def _record(self) -> None:
        """A baseline, a drop in two domains that is confirmed, runs of another source, an invalid one, readings."""
        recorder, now, told = Recorder(self.config), START, 0

        def record(length: float, domain: str = DOMAIN, job: ProbeJob | None = None, **changes: Any) -> None:
            nonlocal now, told
            told += 1
            said = {"request": length, "stream": length - 0.01}
            run = make_run(length, domain=domain, started_at=now, acceptance_by_source=said, **changes)
            again = tuple(replace(sample, cached_prompt_tokens=32) for sample in run.samples)
            run = replace(run, warm=warmed(domain, run.samples, again, None, run.replica))
            job = job or ProbeJob(f"run {told}", ROUTE, domain, REPLICA, run.reason)
            with self.database.transaction() as connection:
                recorder.record(connection, job, run, run.finished_at)
            now += timedelta(minutes=40)

        for domain in (DOMAIN, "math"):
            for _ in range(10):
                record(2.4, domain)
            record(1.92, domain)
            for _ in range(2):
                record(1.92, domain, self._confirmation(domain), reason=Reason.CONFIRM)
        record(2.4)
        record(2.2, "prose", source=Source.STREAM)
        record(2.2, "prose", invalid_reason="busy")
        reading = {"reads": 10, "generated_tokens": 90, "steps": 40, "drafted": 120, "accepted": 50}
        with self.database.transaction() as connection:
            store_organic(connection, [Organic(ROUTE, REPLICA, START, START + timedelta(minutes=10), **reading)])
            self.incident = incidents.list_incidents(connection)[0]["id"]
        self.names |= {"run": str(told - 3), "incident": str(self.incident)}
        record(1.92, identity=replace(make_run().identity, version="0.33.0"))
        with self.database.transaction() as connection:
            recorder.tell_overdue(connection, now + timedelta(days=1))

    def _confirmation(self, domain: str) -> ProbeJob:
        statement = "SELECT id, args -> 'job' AS job FROM procrastinate_jobs ORDER BY id"
        with self.database.transaction() as connection:
            jobs = [row for row in connection.exec_driver_sql(statement) if row.job["reason"] == "confirm"]
            due = next(row for row in jobs if row.job["domain"] == domain)
            connection.exec_driver_sql(f"DELETE FROM procrastinate_jobs WHERE id = {due.id}")
        return ProbeJob.from_dict(due.job)

    def says(self, *arguments: str) -> str:
        """What the command prints for people's eyes and programs; its messages are left out."""
        words = [word.format(**self.names) for word in arguments]
        result = CliRunner().invoke(cli, words, env=self.environment)
        assert result.exit_code == 0, (words, result.output, result.exception)
        return result.stdout


@pytest.fixture
def surfaces(database: Database, tmp_path: Path) -> Iterator[Surfaces]:
    plain = SimulatedServer(ServerConfig(drafter=Drafter(method=None)), BATCHES_COST)
    alike = [SimulatedServer(ServerConfig(seed=seed), BATCHES_COST) for seed in (0, 1)]
    with ExitStack() as running:
        speculative, twin, candidate = (
            running.enter_context(server.run_in_thread()) for server in (alike[0], plain, alike[1])
        )
        yield Surfaces(database, tmp_path, (speculative, twin, candidate))


def nameless(text: str, format_: str) -> list[str]:
    match format_:
        case "json":
            return list(nameless_in_document(json.loads(text)))
        case "csv":
            return nameless_in_csv(text)
        case _:
            return nameless_in_text(text)


def every_way() -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Command, format and arguments; the formats are those that the command offers."""
    for context, command in commands():
        name = context.command_path.removeprefix("specwatch ")
        offered = [option for option in command.params if "--format" in option.opts]
        formats = offered[0].type.choices if offered and isinstance(offered[0].type, click.Choice) else ("",)
        for arguments in SHOWS_FIGURES.get(name, ()):
            for format_ in formats:
                yield name, format_, (*arguments, *(("--format", format_) if format_ else ()))


def test_every_command_is_known_to_show_figures_or_not_to() -> None:
    found = {context.command_path.removeprefix("specwatch ") for context, _ in commands()} - {"specwatch"}
    assert found == {*SHOWS_FIGURES, *NONE}


def test_every_figure_of_every_command_names_its_source(surfaces: Surfaces) -> None:
    surfaces.measure()
    found = {}
    for command, format_, arguments in every_way():
        said = surfaces.says(*command.split(), *arguments)
        assert said.strip(), (command, arguments)
        if missing := nameless(said, format_):
            found[f"{command} {' '.join(arguments)}"] = missing
    assert found == {}, json.dumps(found, indent=1, ensure_ascii=False)


async def test_every_figure_of_every_page_names_its_source(surfaces: Surfaces) -> None:
    app = build_app(surfaces.database, list, dict, surfaces.config.routes)
    assert {route.path for route in app.routes} == PAGES | PAGES_WITHOUT  # type: ignore[attr-defined]
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://specwatch") as client:
        page = (await client.get("/metrics")).text
        shown = (await client.get(f"/incidents/{surfaces.incident}")).text
        document = (await client.get(f"/incidents/{surfaces.incident}", headers={"Accept": "application/json"})).json()
    assert 'specwatch_acceptance_length_by_source{domain="math"' in page
    assert nameless_series(page) == []
    assert "at worst -20.0%, 1.92 of 2.40 by request" in shown
    assert nameless_in_text(shown) == []
    assert list(nameless_in_document(document)) == []


def test_every_figure_of_every_message_names_its_source(surfaces: Surfaces) -> None:
    with surfaces.database.transaction() as connection:
        found = incidents.get_incident(connection, surfaces.incident)
    assert found is not None
    assert [event["transition"] for event in found["events"]] == ["opened", "updated"]
    for event in found["events"]:
        assert "acceptance length 1.92 by request, 20% below its baseline 2.40" in event["summary"]
        assert nameless_in_text(event["summary"]) == nameless_in_text(event["text"]) == []
        for alert in webhook_body("hook", surfaces.incident, event, None)["alerts"]:
            assert alert["annotations"]["source"] == "request"


def test_the_line_of_a_run_names_its_source(surfaces: Surfaces) -> None:
    with surfaces.database.transaction() as connection:
        found = runs.list_runs(connection, ROUTE, None, 50)
        lines = [run_line(run, verdicts.list_verdicts(connection, run["id"])) for run in found]
    assert any("AL 1.92 by request" in line for line in lines)
    assert any("AL 2.20 by stream" in line for line in lines)
    assert [missing for line in lines for missing in nameless_in_text(line)] == []


def test_every_figure_of_every_file_names_its_source(surfaces: Surfaces, tmp_path: Path) -> None:
    for name in (*(f"history{suffix}" for suffix in SUFFIXES), PROFILE):
        file = tmp_path / name
        surfaces.says("export", ROUTE, str(file))
        if file.suffix == ".parquet":
            assert list(nameless_in_document(pyarrow.parquet.read_table(file).to_pylist())) == []
        else:
            assert nameless(file.read_text(encoding="utf-8"), file.suffix.removeprefix(".")) == []


@pytest.mark.parametrize(
    ("format_", "text"),
    [
        ("json", '[{"points": [{"acceptance_length": 2.4, "source": null}]}]'),
        ("csv", "domain,source,speedup\nmath,,1.4\n"),
        ("table", "domain    AL  source\n────────────────────\nmath    2.40  request\ncoding  2.41  –\n"),
        ("table", "model m\n\nconc.  speedup\n──────────────\n    1     1.40\n"),
        ("markdown", "| domain | AL |\n| --- | ---: |\n| math | 2.40 |"),
    ],
)
def test_a_figure_without_a_source_is_found(format_: str, text: str) -> None:
    assert len(nameless(text, format_)) == 1
