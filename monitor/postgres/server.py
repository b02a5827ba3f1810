"""A real Postgres in a data directory, started by whoever needs it first and stopped by whoever leaves last.

Pid files decide nothing. Three locks, which the kernel drops with the processes that hold them, say what is true:

* `postgres.lock`, exclusive: one process at a time starts or stops;
* `postgres.users`, shared: one holder per user of the server, so the last to leave knows that it is the last;
* the folder `postgres/`, exclusive: inherited by the server and its children, so it is free exactly when none of them
  runs, and only then are a stale `postmaster.pid` and socket removed.
"""

import os
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from urllib.parse import quote

import psycopg

from monitor.errors import StoreError
from monitor.postgres.cluster import PORT, ROLE, SOCKET, Cluster, folder_lock, try_lock, visible, within
from monitor.postgres.programs import Command, ServerUser, server_user

if sys.platform != "win32":
    import fcntl

START_SECONDS = 60.0  # includes replaying up to max_wal_size after a crash
STOP_SECONDS = 10.0
_DATABASE = "postgres"
_SETTINGS = {
    "listen_addresses": "",
    "unix_socket_permissions": "0700",
    "cluster_name": "specwatch",
    "shared_buffers": "64MB",
    "max_connections": "60",
    "max_wal_size": "256MB",
    "max_parallel_workers_per_gather": "0",  # containers give /dev/shm 64 MB, parallel queries overrun it
    "io_method": "sync",  # three processes fewer than with I/O workers
    "max_logical_replication_workers": "0",
    "fsync": "on",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_checkpoints": "off",
    "log_min_messages": "log",  # errors of queries reach who asked; the log stays small for months
}


def data_directory(environment: Mapping[str, str]) -> Path:
    """Where Specwatch keeps its data: `SPECWATCH_DATA`, else `specwatch` in the user's data home; always absolute."""
    chosen = environment.get("SPECWATCH_DATA")
    if chosen:
        return Path(chosen).expanduser().absolute()
    data_home = Path(environment.get("XDG_DATA_HOME", ""))
    if not data_home.is_absolute():  # unset, or to be ignored by the XDG specification
        data_home = Path(environment.get("HOME") or Path.home()) / ".local" / "share"
    return data_home / "specwatch"


class EmbeddedPostgres:
    """A Postgres server on the files in `directory`, shared by every process that starts one there.

    The URL is the same after every restart. Every error is a StoreError. Also across kill −9 of this process, of the
    server, or of both, no committed row is lost and there is never a second server on the same files. After kill −9 of
    its last user a server runs on until the next one adopts it.
    """

    def __init__(self, directory: Path) -> None:
        self._cluster = Cluster(directory)
        self._password = ""
        self._refusal = ""
        self._lease: int | None = None

    def __enter__(self) -> str:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    def start(self) -> str:
        """Return the SQLAlchemy URL of a server that answers: the running one, or a new one (≤ `START_SECONDS`)."""
        if sys.platform == "win32":
            raise StoreError("Specwatch starts its own Postgres only on Linux and macOS: set DATABASE_URL")
        with self._readable_errors():
            self._cluster.directory.mkdir(mode=0o711, parents=True, exist_ok=True)
            with self._transition():
                self._bring_up()
                if self._lease is None:
                    self._lease = self._cluster.open("postgres.users")
                    fcntl.flock(self._lease, fcntl.LOCK_SH)
        return self._url()

    def ensure_running(self) -> str:
        """Return the URL after one connection was accepted (a few milliseconds), restarting a dead server first."""
        if self._lease is not None and self._answers():
            return self._url()
        return self.start()

    def stop(self) -> None:
        """Give up this user's share; the last user stops the server (fast: open transactions are rolled back)."""
        if self._lease is None:
            return
        with self._readable_errors(), self._transition():
            lease, self._lease = self._lease, None
            last_user = try_lock(lease)
            os.close(lease)
            if last_user:
                self._shut_down()

    @contextmanager
    def _transition(self) -> Iterator[None]:
        """The only one who starts or stops."""
        fd = self._cluster.open("postgres.lock")
        try:
            if not within(START_SECONDS + STOP_SECONDS, lambda: try_lock(fd)):
                raise StoreError(f"another process keeps starting or stopping Postgres in {self._cluster.directory}")
            yield
        finally:
            os.close(fd)

    def _bring_up(self) -> None:
        user = server_user(self._cluster.directory)
        self._cluster.prepare(user)
        self._password = self._cluster.password()
        if self._answers():
            return
        claim = os.open(self._cluster.path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            if not within(START_SECONDS, lambda: try_lock(claim) or self._answers()):
                raise self._unreachable()
            if not self._answers():
                self._launch(user, claim)
        finally:
            os.close(claim)

    def _launch(self, user: ServerUser, claim: int) -> None:
        """Start a server that inherits `claim`, the proof that nothing else runs on these files."""
        self._cluster.clear_leftovers(user)
        data = visible(self._cluster.path, user, claim)
        sockets = data if self._cluster.sockets == self._cluster.path else str(self._cluster.sockets)
        settings = [f"--{name}={value}" for name, value in _SETTINGS.items()]
        command: Command = ["postgres", "-D", data, "-k", sockets, "-p", str(PORT), *settings]
        server = self._cluster.run(user, command, claim)
        threading.Thread(target=server.wait, name="postgres-reaper", daemon=True).start()
        try:
            self._await(server)
        except BaseException:
            server.send_signal(signal.SIGINT)
            raise

    def _await(self, server: "subprocess.Popen[bytes]") -> None:
        within(START_SECONDS, lambda: self._answers() or server.poll() is not None)
        if server.poll() is not None or not self._answers():
            raise self._cluster.failure("did not start")

    def _shut_down(self) -> None:
        for wish, seconds in ((signal.SIGINT, STOP_SECONDS), (signal.SIGQUIT, STOP_SECONDS / 2)):
            postmaster = self._postmaster()
            if postmaster:
                os.kill(postmaster, wish)
            try:
                with folder_lock(self._cluster.path, seconds):
                    return
            except BlockingIOError:
                continue
        raise self._unreachable()

    def _postmaster(self) -> int:
        """The process that listens on the socket; 0 when nobody does. Linux tells, elsewhere its pid file is fresh."""
        with socket.socket(socket.AF_UNIX) as connection:
            try:
                connection.connect(str(self._cluster.sockets / SOCKET))
            except (FileNotFoundError, ConnectionRefusedError):
                return 0
            if sys.platform == "linux":
                size = struct.calcsize("3i")
                peer = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))[0]
            else:
                peer = (self._cluster.path / "postmaster.pid").read_text().split()[0]
            return int(peer)

    def _answers(self) -> bool:
        """Whether a server accepts our password now; a full house is an answer too."""
        try:
            psycopg.connect(
                host=str(self._cluster.sockets),
                port=PORT,
                user=ROLE,
                password=self._password,
                dbname=_DATABASE,
                connect_timeout=3,
            ).close()
        except psycopg.OperationalError as error:
            self._refusal = str(error).partition("\n")[0]
            if "password authentication failed" in self._refusal:
                raise StoreError(
                    f"the password file in {self._cluster.directory} does not open its cluster: restore the file"
                ) from None
            return "too many clients" in self._refusal
        return True

    def _url(self) -> str:
        host = quote(str(self._cluster.sockets))
        return f"postgresql+psycopg://{ROLE}:{self._password}@/{_DATABASE}?host={host}&port={PORT}"

    def _unreachable(self) -> StoreError:
        return StoreError(
            f"a Postgres process runs on {self._cluster.path} but neither answers nor ends ({self._refusal}): "
            "end the process named in the first line of postmaster.pid there, and start again"
        )

    @contextmanager
    def _readable_errors(self) -> Iterator[None]:
        try:
            yield
        except (OSError, subprocess.TimeoutExpired) as error:
            raise StoreError(
                f"cannot keep a database in {self._cluster.directory}: {error}; "
                "make room or give permission, choose another folder with SPECWATCH_DATA, or set DATABASE_URL"
            ) from error
