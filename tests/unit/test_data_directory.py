"""Where the embedded Postgres keeps its files, and where it refuses to exist."""

import sys
from pathlib import Path

import pytest

from monitor.errors import StoreError
from monitor.postgres import EmbeddedPostgres, data_directory
from monitor.postgres.cluster import Cluster


def test_specwatch_data_names_the_directory_itself() -> None:
    environment = {"SPECWATCH_DATA": "/srv/monitor", "XDG_DATA_HOME": "/elsewhere", "HOME": "/home/ann"}
    assert data_directory(environment) == Path("/srv/monitor")


def test_a_relative_specwatch_data_becomes_absolute() -> None:
    assert data_directory({"SPECWATCH_DATA": "state"}) == Path.cwd() / "state"


def test_the_data_home_holds_a_folder_of_our_own() -> None:
    assert data_directory({"XDG_DATA_HOME": "/data", "HOME": "/home/ann"}) == Path("/data/specwatch")


@pytest.mark.parametrize("data_home", [{}, {"XDG_DATA_HOME": ""}, {"XDG_DATA_HOME": "relative"}])
def test_without_an_absolute_data_home_the_users_own_is_taken(data_home: dict[str, str]) -> None:
    assert data_directory({"HOME": "/home/ann", **data_home}) == Path("/home/ann/.local/share/specwatch")


def test_the_socket_lies_in_the_cluster() -> None:
    assert Cluster(Path("/srv/monitor data")).sockets == Path("/srv/monitor data/postgres")


@pytest.mark.parametrize("name", ["long" * 20, "with,comma", "with:colon", "größe"])
def test_a_path_that_is_no_socket_address_gets_a_short_folder_that_stays_the_same(name: str) -> None:
    sockets = Cluster(Path("/srv") / name).sockets
    assert sockets.parent == Path("/tmp")
    assert sockets == Cluster(Path("/srv") / name).sockets
    assert sockets != Cluster(Path("/srv") / f"{name}2").sockets
    assert len(str(sockets / ".s.PGSQL.5432")) < 100


def test_on_windows_the_message_says_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(StoreError, match="set DATABASE_URL"):
        EmbeddedPostgres(Path("/srv/monitor")).start()
