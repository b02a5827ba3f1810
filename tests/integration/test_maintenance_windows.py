"""Maintenance windows in the store: an opening is one silence, which may be ended early and is not made again."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from monitor.alerting.dead_letters import DeadLetters
from monitor.alerting.windows import follow_windows, open_windows
from monitor.config.maintenance import Maintenance
from monitor.service.reconciling import reconcile
from monitor.store.silences import add_silence, end_silence, list_silences, tell_end
from tests.factories import ROUTE, START, make_alerting, make_config
from tests.integration.test_shell_answers import specwatch
from tests.integration.test_silences import HOUR, incident, sent, states

if TYPE_CHECKING:
    from datetime import datetime
    from pathlib import Path

    from sqlalchemy import Connection

    from monitor.store.database import Database


def window(**changes: Any) -> Maintenance:
    """Opens at START, each day, for two hours."""
    asked = {"name": "nightly", "reason": "drafters are rolled out", "at": f"{START:%H:%M}", "lasts": "2h", **changes}
    return Maintenance.model_validate(asked)


def opened(connection: Connection, found: Maintenance, after: timedelta = timedelta(0)) -> list[dict[str, Any]]:
    """What is silenced at that time, once the window was looked at."""
    open_windows(connection, [found], START + after)
    return list_silences(connection, START + after)


def test_a_message_within_a_window_is_held_and_told_after_it_while_it_still_fires(connection: Connection) -> None:
    [silence] = opened(connection, window())
    assert (silence["by"], silence["reason"]) == ("maintenance nightly", "drafters are rolled out")
    assert (silence["created_at"], silence["ends_at"]) == (START.isoformat(), (START + 2 * HOUR).isoformat())
    incident_id = incident(connection)
    assert sent(connection, HOUR) == []
    assert states(connection, incident_id) == ["silenced"]
    assert opened(connection, window(), 2 * HOUR) == []
    assert sent(connection, 2 * HOUR) == ["opened"]


def test_a_window_holds_only_what_it_names(connection: Connection) -> None:
    opened(connection, window(routes=["other"]))
    incident(connection)
    assert sent(connection) == ["opened"]


def test_each_route_of_a_window_is_a_silence_and_the_next_day_another(connection: Connection) -> None:
    two = window(routes=[ROUTE, "other"], match={"team": "chat"}, severity="warning")
    assert {(one["route"], one["labels"]["team"], one["severity"]) for one in opened(connection, two)} == {
        (ROUTE, "chat", "warning"), ("other", "chat", "warning"),
    }  # fmt: skip
    assert len(opened(connection, two, HOUR)) == 2
    assert len(opened(connection, two, 25 * HOUR)) == 2
    assert len(list_silences(connection, START + 25 * HOUR, active_only=False)) == 4


def test_a_window_that_was_ended_early_stays_ended(connection: Connection) -> None:
    [silence] = opened(connection, window())
    end_silence(connection, silence["id"], "ann", START + timedelta(minutes=5))
    assert opened(connection, window(), HOUR) == []


MINUTE = timedelta(minutes=1)


@pytest.mark.parametrize(("lasts", "ends_at"), [("4h", START + 4 * HOUR), ("90m", START + 1.5 * HOUR)])
def test_a_window_that_is_edited_while_it_is_open_has_its_new_end(
    connection: Connection, lasts: str, ends_at: datetime
) -> None:
    [silence] = opened(connection, window())
    assert tell_end(connection, silence["id"], START)
    edited = window(lasts=lasts, reason="it takes longer")
    follow_windows(connection, [edited], START + MINUTE)
    [followed] = opened(connection, edited, MINUTE)
    assert followed == {
        **silence, "ends_at": ends_at.isoformat(), "reason": "it takes longer", "end_told_at": None,
    }  # fmt: skip


def test_a_window_that_is_as_it_was_is_told_ahead_once(connection: Connection) -> None:
    [silence] = opened(connection, window())
    tell_end(connection, silence["id"], START)
    [before] = opened(connection, window())
    follow_windows(connection, [window()], START + MINUTE)
    assert opened(connection, window(), MINUTE) == [before]


@pytest.mark.parametrize("now_in_file", [[], [window(lasts="30m")], [window(name="other")], [window(routes=["other"])]])
def test_a_window_that_is_open_no_longer_by_the_file_is_over_and_what_it_held_is_told(
    connection: Connection, now_in_file: list[Maintenance]
) -> None:
    [silence] = opened(connection, window())
    incident(connection)
    assert sent(connection, MINUTE) == []
    follow_windows(connection, now_in_file, START + HOUR)
    ended = next(
        one for one in list_silences(connection, START + HOUR, active_only=False) if one["id"] == silence["id"]
    )
    assert (ended["state"], ended["ended_at"]) == ("ended", (START + HOUR).isoformat())
    assert ended["ended_by"] == "maintenance nightly"
    assert sent(connection, HOUR) == ["opened"]


def test_a_window_ended_early_and_what_people_silenced_do_not_follow(connection: Connection) -> None:
    [silence] = opened(connection, window())
    end_silence(connection, silence["id"], "ann", START + MINUTE)
    for by in ("ann", "maintenance crew"):
        add_silence(connection, by, "a rollout", START + 3 * HOUR, START + timedelta(microseconds=1))
    before = list_silences(connection, START + MINUTE, active_only=False)
    follow_windows(connection, [window(lasts="4h")], START + 2 * MINUTE)
    assert list_silences(connection, START + MINUTE, active_only=False) == before


def test_a_start_reads_the_file_anew(database: Database) -> None:
    with database.transaction() as connection:
        opened(connection, window())
    config = make_config(alerting=make_alerting())
    reconcile(database, config, DeadLetters(config.alerting, config.routes), START + HOUR, closes_removed=False)
    with database.transaction() as connection:
        assert len(list_silences(connection, START + HOUR)) == 1
    reconcile(database, config, DeadLetters(config.alerting, config.routes), START + HOUR)
    with database.transaction() as connection:
        assert list_silences(connection, START + HOUR) == []


def test_senders_that_look_at_once_make_one_silence(database: Database) -> None:
    def look(_: int) -> None:
        with database.transaction() as connection:
            open_windows(connection, [window()], START)

    with ThreadPoolExecutor(4) as senders:
        list(senders.map(look, range(8)))
    with database.transaction() as connection:
        assert len(list_silences(connection, START)) == 1


def test_the_list_of_silences_says_when_a_window_opens_next(database: Database, tmp_path: Path) -> None:
    (tmp_path / "routes.yaml").write_text(f"routes: [{{name: {ROUTE}, replicas: ['http://127.0.0.1:9']}}]\n")
    (tmp_path / "alerting.yaml").write_text(
        "rules: [{name: drop, metric: acceptance_length, drop: 15%, severity: page}]\n"
        "receivers: [{name: out, log: {}}]\n"
        "maintenance: [{name: party, reason: new drafters, once: '2099-12-24 22:00', lasts: 1h,"
        f" timezone: Europe/Berlin, routes: [{ROUTE}]}}]\n"
    )
    command = ("--config", str(tmp_path), "silence", "list")
    shown = specwatch(database, *command)
    assert (shown.exit_code, "maintenance party" in shown.stdout) == (0, True)
    [coming] = json.loads(specwatch(database, *command, "--format", "json").stdout)
    assert (coming["id"], coming["state"], coming["route"]) == (None, "scheduled", ROUTE)
    assert (coming["created_at"], coming["ends_at"]) == ("2099-12-24T21:00:00+00:00", "2099-12-24T22:00:00+00:00")


def test_the_list_of_silences_says_why_it_shows_no_windows(database: Database, tmp_path: Path) -> None:
    (tmp_path / "routes.yaml").write_text(f"routes: [{{name: {ROUTE}, replicas: ['http://127.0.0.1:9']}}]\n")
    (tmp_path / "alerting.yaml").write_text("rulez: []\n")
    shown = specwatch(database, "--config", str(tmp_path), "silence", "list")
    assert (shown.exit_code, shown.stdout) == (0, "")
    assert "nothing is silenced" in shown.stderr
    assert "maintenance windows are not shown: alerting.yaml: " in shown.stderr
