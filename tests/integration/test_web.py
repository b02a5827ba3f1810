"""The HTTP side of the service, without a socket."""

from __future__ import annotations

from typing import TYPE_CHECKING

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.utils import floatToGoString

from monitor.core.incidents import BrokenDomain, IncidentState, Transition
from monitor.core.tally import Tally
from monitor.core.warm import not_warmed, warmed
from monitor.resources import resource_directory
from monitor.store import incident_events, incidents
from monitor.store.runs import store_run
from monitor.web.app import build_app
from tests.factories import DOMAIN, ROUTE, START, make_document, make_route, make_run, make_sample

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from monitor.store.database import Database


@pytest.fixture
async def client(database: Database) -> AsyncIterator[httpx.AsyncClient]:
    app = build_app(database, list, lambda: {"runs": 3.0}, [make_route(domains=[DOMAIN])])
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://specwatch") as found:
        yield found


async def test_a_ready_service_says_so(client: httpx.AsyncClient) -> None:
    assert (await client.get("/healthz")).text == "alive\n"
    answer = await client.get("/readyz")
    assert (answer.status_code, answer.json()) == (200, {"ready": True, "problems": [], "heartbeat": None})


async def test_a_service_with_a_problem_is_alive_but_not_ready(database: Database) -> None:
    app = build_app(database, lambda: ["stopping"], dict, [])
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://specwatch") as client:
        answer = await client.get("/readyz")
        assert (answer.status_code, answer.json()["problems"]) == (503, ["stopping"])
        assert (await client.get("/healthz")).status_code == 200


async def test_the_metrics_page_has_the_latest_figures_and_the_route_s_own(
    client: httpx.AsyncClient, database: Database
) -> None:
    with database.transaction() as connection:
        store_run(connection, "first", make_run(2.0))
        store_run(connection, "second", make_run(2.5))
    page = (await client.get("/metrics")).text
    found = {sample.name: sample.value for family in text_string_to_metric_families(page) for sample in family.samples}
    assert found["specwatch_acceptance_length"] == 2.5
    assert found["specwatch_route_acceptance_length"] == 2.5
    assert found["specwatch_runs_total"] == 3.0


async def test_the_metrics_page_has_what_each_source_says_of_the_latest_run(
    client: httpx.AsyncClient, database: Database
) -> None:
    with database.transaction() as connection:
        store_run(connection, "one", make_run(2.5, acceptance_by_source={"request": 2.5, "stream": 2.45}))
    page = (await client.get("/metrics")).text
    of_one = f'domain="{DOMAIN}",route="{ROUTE}"'
    assert f'specwatch_acceptance_length_by_source{{{of_one},source="request"}} 2.5\n' in page
    assert f'specwatch_acceptance_length_by_source{{{of_one},source="stream"}} 2.45\n' in page


async def test_the_metrics_page_has_the_warm_pass_of_the_latest_run_where_it_is_valid(
    client: httpx.AsyncClient, database: Database
) -> None:
    cold, warm = (
        [make_sample(f"q{number}", length, cached_prompt_tokens=cached) for number in range(24)]
        for length, cached in ((2.5, 0), (2.0, 32))
    )
    with database.transaction() as connection:
        store_run(connection, "one", make_run(2.5, warm=warmed(DOMAIN, cold, warm, None, "http://a")))
        store_run(connection, "two", make_run(2.5, domain="math", warm=not_warmed("math", "not_cached", "nothing")))
    page = (await client.get("/metrics")).text
    found = [line for line in page.splitlines() if line.startswith("specwatch_warm_acceptance_length{")]
    labels = f'domain="{DOMAIN}",replica="http://vllm-0:8000",route="{ROUTE}",source="request"'
    assert found == [f"specwatch_warm_acceptance_length{{{labels}}} 2.0"]


async def test_the_link_of_a_message_leads_to_its_incident(client: httpx.AsyncClient, database: Database) -> None:
    with database.transaction() as connection:
        state = IncidentState({DOMAIN: BrokenDomain("acceptance-drop", "page")})
        number = incidents.save_state(connection, ROUTE, None, state, START)
        incident_events.add_event(connection, number, Transition.OPENED, {"text": "PAGE it fell"}, ["hook"], START)
    page = await client.get(f"/incidents/{number}")
    assert page.text.startswith(f"incident {number} of {ROUTE}: open, page\n")
    assert "PAGE it fell" in page.text
    assert "told       hook: pending, 0 attempts; next at 2026-03-02 10:00:00 UTC" in page.text
    as_json = await client.get(f"/incidents/{number}", headers={"Accept": "application/json"})
    assert as_json.json()["domains"] == {
        DOMAIN: {
            "rule": "acceptance-drop",
            "severity": "page",
            "well_runs": 0,
            "worst": None,
            "joined_at": None,
            "left_at": None,
            "absolute": False,
            "metric": None,
            "rejoined_at": None,
        }
    }
    for number in (999, 10**20):
        missing = await client.get(f"/incidents/{number}")
        assert (missing.status_code, missing.text) == (404, f"there is no incident {number}\n")


async def test_a_heartbeat_that_is_withheld_is_told_and_makes_nobody_unready(database: Database) -> None:
    reason = "withheld: hook: a message waits since 2026-03-02 10:00:00+00:00"
    transport = httpx.ASGITransport(build_app(database, list, dict, [], heartbeat=lambda: reason))
    async with httpx.AsyncClient(transport=transport, base_url="http://specwatch") as client:
        answer = await client.get("/readyz")
    assert (answer.status_code, answer.json()["heartbeat"]) == (200, reason)


async def test_deliveries_are_counted_by_receiver_from_zero_and_the_oldest_that_waits_is_dated(
    database: Database,
) -> None:
    with database.transaction() as connection:
        state = IncidentState({"coding": BrokenDomain("acceptance-drop", "page")})
        incident_id = incidents.save_state(connection, ROUTE, None, state, START)
        incident_events.add_event(connection, incident_id, Transition.OPENED, make_document(), ["hook"], START)
    failures = Tally({"receiver": ["hook", "log"], "reason": ["refused"]})
    failures.add("hook", "refused")
    app = build_app(database, list, lambda: {"delivery_failures": failures}, [], receivers=["hook", "log"])
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://specwatch") as client:
        lines = (await client.get("/metrics")).text.splitlines()
    shown = [line for line in lines if line.startswith(("specwatch_deliver", "specwatch_oldest"))]
    assert shown == [
        'specwatch_deliveries{receiver="hook",state="dead"} 0.0',
        'specwatch_deliveries{receiver="hook",state="pending"} 1.0',
        'specwatch_deliveries{receiver="hook",state="sent"} 0.0',
        'specwatch_deliveries{receiver="log",state="dead"} 0.0',
        'specwatch_deliveries{receiver="log",state="pending"} 0.0',
        'specwatch_deliveries{receiver="log",state="sent"} 0.0',
        f'specwatch_oldest_delivery_timestamp_seconds{{receiver="hook"}} {floatToGoString(START.timestamp())}',
        'specwatch_delivery_failures_total{reason="refused",receiver="hook"} 1.0',
        'specwatch_delivery_failures_total{reason="refused",receiver="log"} 0.0',
    ]


async def test_the_first_page_names_the_others_and_each_of_them_is_there(client: httpx.AsyncClient) -> None:
    as_text = await client.get("/")
    assert as_text.status_code == 200
    assert "/metrics       figures for Prometheus\n" in as_text.text
    pages = (await client.get("/", headers={"Accept": "application/json"})).json()["pages"]
    assert [line.split()[0] for line in as_text.text.splitlines()] == list(pages)
    for path in ("/healthz", "/readyz", "/metrics", "/runbook"):
        assert path in pages
        assert (await client.get(path)).status_code == 200


async def test_the_runbook_begins_with_what_to_do_and_has_every_section(client: httpx.AsyncClient) -> None:
    page = await client.get("/runbook")
    assert page.headers["content-type"] == "text/plain; charset=utf-8"
    assert page.text.startswith("# Alerts\n\n## What to do\n\n1. ")
    written = (resource_directory("docs") / "alerts.md").read_text(encoding="utf-8")
    assert sorted(page.text.splitlines()) == sorted(written.splitlines())
