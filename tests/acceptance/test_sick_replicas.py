"""A replica that fails in any way gives invalid runs with the reason and no incident; a real drop still opens one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from monitor.sim import Fault, FaultKind, SimulatedServer
from tests.acceptance.processes import eventually
from tests.acceptance.stored import count, jobs, rows, runs

if TYPE_CHECKING:
    from monitor.store.database import Database
    from tests.acceptance.hooks import Hook
    from tests.acceptance.processes import Home

pytestmark = pytest.mark.timeout(180)

ILLS: list[tuple[str, dict[str, Any]]] = [
    ("cut_off", {"kind": FaultKind.CUT}),
    ("error_in_stream", {"kind": FaultKind.ERROR_IN_STREAM}),
    ("invalid_json", {"kind": FaultKind.INVALID_JSON}),
    ("server_error", {"kind": FaultKind.REJECT, "status": 501}),
    ("stalled", {"kind": FaultKind.HANG}),
]


def reasons(database: Database) -> set[str]:
    """Why prompts of invalid runs failed."""
    found = rows(database, "SELECT jsonb_object_keys(invalid_reasons) FROM runs WHERE NOT valid")
    return {row[0] for row in found}


def test_faults_in_mid_stream_make_runs_invalid_and_only_a_real_drop_opens_an_incident(
    home: Home, simulator: SimulatedServer, database: Database, hook: Hook
) -> None:
    home.routes(every="1s", timeouts={"connect": "2s", "first_token": "2s", "stall": "500ms", "total": "10s"})
    home.receivers([{"name": "hook", "webhook": {"url": hook.url}}])
    serve = home.serve()
    eventually(lambda: count(database, "baselines"), "there is a baseline")
    for reason, fault in ILLS:
        simulator.inject(Fault(times=None, **fault))
        eventually(lambda: reason in reasons(database), f"a run is invalid for {reason}")  # noqa: B023  (called at once)
        simulator.faults.clear()
    assert (count(database, "trips"), count(database, "incidents"), hook.messages) == (0, 0, [])

    simulator.set_acceptance("coding", 0.1, 0.1, 0.1)
    eventually(lambda: hook.transitions() == ["opened"], "the drop opens an incident")
    simulator.set_acceptance("coding", *simulator.config.drafter.default_acceptance)
    eventually(lambda: hook.transitions() == ["opened", "resolved"], "it resolves")
    assert {message.body["status"] for message in hook.messages} == {"firing", "resolved"}
    serve.stop()


def test_a_replica_that_is_gone_makes_an_invalid_run_and_is_probed_again(home: Home, database: Database) -> None:
    settings = home.simulator_settings()
    with SimulatedServer(settings).run_in_thread() as url:
        home.routes(url, every="1s")
        serve = home.serve()
        eventually(lambda: runs(database), "it is probed")
    eventually(lambda: runs(database)[-1][1] == "unreachable", "a run is invalid")
    with SimulatedServer(settings).run_in_thread(port=int(url.rpartition(":")[2])):
        eventually(lambda: runs(database)[-1][1] is None, "a run is valid again")
        serve.stop()
    assert count(database, "incidents") == 0


def test_a_busy_replica_is_left_alone_until_it_is_free_or_the_run_is_given_up(
    home: Home, simulator: SimulatedServer, database: Database
) -> None:
    home.routes(stand_aside={"retry_after": "200ms", "give_up_after": "1h"})
    simulator.behave(waiting=5)
    serve = home.serve()
    eventually(lambda: "standing aside" in serve.log(), "the probe stands aside")
    eventually(lambda: [status for _, status in jobs(database)] == ["todo"], "it waits in the queue")
    assert simulator.engines[0].finished.total() == 0
    assert runs(database) == []
    simulator.behave(waiting=None)
    eventually(lambda: runs(database) and not jobs(database), "the run is made")
    assert [reason for _, reason in runs(database)] == [None]
    serve.stop()


def test_a_replica_that_stays_busy_makes_an_invalid_run(
    home: Home, simulator: SimulatedServer, database: Database
) -> None:
    home.routes(stand_aside={"retry_after": "200ms", "give_up_after": "1s"})
    simulator.behave(waiting=5)
    serve = home.serve()
    eventually(lambda: runs(database) and not jobs(database), "the run is given up")
    assert [reason for _, reason in runs(database)] == ["busy"]
    assert simulator.engines[0].finished.total() == 0
    serve.stop()


def test_a_confirmation_that_is_not_due_holds_up_no_probe_of_its_replica(
    home: Home, simulator: SimulatedServer, database: Database
) -> None:
    home.routes(every="1s", domains=["coding", "math"], confirm_after=["50s", "1h"])
    serve = home.serve()
    eventually(lambda: count(database, "baselines") == 2, "there are baselines")
    simulator.set_acceptance("coding", 0.1, 0.1, 0.1)
    eventually(lambda: count(database, "trips"), "a run trips")
    before = len(runs(database))
    eventually(lambda: len(runs(database)) > before + 2, "probes go on", 30)
    assert len([key for key, _ in jobs(database) if key.startswith("confirm")]) == 2
    serve.stop()
