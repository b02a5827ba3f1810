"""What `serve` does not start with, and what it says then; an older or empty schema it upgrades."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest

from tests.acceptance.processes import Home, eventually
from tests.acceptance.stored import execute, rows, runs

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from monitor.sim import SimulatedServer
    from monitor.store.database import Database

pytestmark = pytest.mark.timeout(180)


def test_an_empty_database_is_given_the_schema(
    home: Home, simulator: SimulatedServer, new_database: Callable[[], Database]
) -> None:
    empty = new_database()
    home.environment["DATABASE_URL"] = empty.url.render_as_string(hide_password=False)
    serve = home.serve()
    eventually(lambda: runs(empty), "a run is stored")
    serve.stop()


def test_a_schema_that_is_newer_is_refused_and_left_as_it_is(
    home: Home, simulator: SimulatedServer, database: Database
) -> None:
    execute(database, "UPDATE alembic_version SET version_num = '9999'")
    refused = home.run("serve", "--listen", "127.0.0.1:0")
    assert refused.returncode == 3
    assert refused.stderr.splitlines()[-1] == (
        "specwatch: the schema is at revision 9999, which this Specwatch does not know: a newer one made it; "
        "upgrade Specwatch, or point DATABASE_URL at another database"
    )
    assert rows(database, "SELECT version_num FROM alembic_version") == [("9999",)]


def test_a_database_out_of_reach_is_named_without_its_password(home: Home, simulator: SimulatedServer) -> None:
    home.environment["DATABASE_URL"] = "postgresql://someone:secret@127.0.0.1:1/specwatch"
    refused = home.run("serve", "--listen", "127.0.0.1:0", "--wait-for-database", "1.5")
    assert refused.returncode == 3
    assert refused.stderr.count("127.0.0.1:1/specwatch does not answer") == 2
    assert "; waiting for it up to 2 s" in refused.stderr
    assert "secret" not in refused.stderr
    assert "Traceback" not in refused.stderr


def test_a_port_in_use_is_refused_before_anything_is_touched(home: Home, simulator: SimulatedServer) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        refused = home.run("serve", "--listen", address)
    assert refused.returncode == 2
    assert refused.stderr == (
        f"specwatch: --listen {address}: Address already in use; choose another, as in --listen 127.0.0.1:8410\n"
    )


def test_every_problem_of_the_configuration_is_told_at_once(tmp_path: Path) -> None:
    home = Home(tmp_path, None)
    (tmp_path / "routes.yaml").write_text("routes:\n  - {name: a, replicas: [nowhere], evry: 40m, max_tokens: lots}\n")
    (tmp_path / "alerting.yaml").write_text("rules: [{name: r, drop: 150%}]\nreceivers: [{name: log, log: {}}]\n")
    refused = home.run("serve", "--listen", "127.0.0.1:0")
    assert refused.returncode == 2
    assert "Traceback" not in refused.stderr
    for word in ("'nowhere'", "evry", "max_tokens", "150%"):
        assert word in refused.stderr
    assert not home.data.exists()


def test_a_secret_that_cannot_be_had_is_named(home: Home, simulator: SimulatedServer) -> None:
    home.routes(api_key={"file": "no-such-file"})
    refused = home.run("serve", "--listen", "127.0.0.1:0")
    assert refused.returncode == 2
    assert "routes.yaml" in refused.stderr
    assert "no-such-file" in refused.stderr
