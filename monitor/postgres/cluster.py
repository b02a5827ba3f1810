"""The files of one data directory: the database cluster, its password, its log and its socket.

postgres/           the cluster, owned by the server's user
postgres.new/       a cluster in the making; only `initdb` that finished gets the name above
postgres.password   the password of the one role, mode 0600
postgres.log        the server's messages; `postgres.log.1` is the one before
postgres.lock       held by whoever starts or stops
postgres.users      held by every user of the server
"""

import hashlib
import os
import re
import secrets
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from monitor.errors import StoreError
from monitor.postgres.programs import SERVER_MAJOR, Command, ServerUser, reachable_programs

if TYPE_CHECKING:
    import subprocess

if sys.platform != "win32":
    import fcntl

ROLE = "specwatch"
PORT = 5432  # only a part of the socket's name: nothing listens on TCP
SOCKET = f".s.PGSQL.{PORT}"
INITDB_SECONDS = 60.0
_SOCKET_PATH_BYTES = 100  # Linux takes 107, macOS 103
_LOG_BYTES = 2**20  # a larger log is set aside at the next start
_STAMP = re.compile(r"[\d-]+ [\d:.]+ UTC \[\d+\] ")
_TELLING = re.compile(r"FATAL|PANIC|ERROR|error:|could not|invalid|HINT")


class Cluster:
    """One database cluster on disk; whether a server runs on it is not its business."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory.expanduser().resolve()
        self.path = self.directory / "postgres"
        self.sockets = self._socket_folder()
        self._password_file = self.directory / "postgres.password"
        self._log = self.directory / "postgres.log"
        self._log_start = 0

    def prepare(self, user: ServerUser) -> None:
        """Make the cluster when there is none; StoreError when another major version made it."""
        if not self.path.exists():
            self._initialise(user)
        marker = self.path / "PG_VERSION"
        found = marker.read_text().strip() if marker.exists() else "of an unknown version"
        if found != str(SERVER_MAJOR):
            raise StoreError(
                f"{self.path} was initialised by Postgres {found}, this Specwatch brings Postgres {SERVER_MAJOR}: "
                "set DATABASE_URL to a server of that version on it, or move the folder away to start empty"
            )

    def password(self) -> str:
        """The password of the role; StoreError when its file is lost."""
        try:
            return self._password_file.read_text()
        except FileNotFoundError:
            raise StoreError(
                f"{self._password_file} is missing and nothing else opens {self.path}: restore it"
            ) from None

    def open(self, name: str, flags: int = 0) -> int:
        """Open or create a private file; like the directory it belongs to its owner, also when root creates it."""
        fd = os.open(self.directory / name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | flags, 0o600)
        if os.geteuid() == 0:
            owner = self.directory.stat()
            os.fchown(fd, owner.st_uid, owner.st_gid)
        return fd

    def run(self, user: ServerUser, command: Command, *inherit: int) -> "subprocess.Popen[bytes]":
        """Start one of the server's programs with its messages appended to the log."""
        if self._log.exists() and self._log.stat().st_size > _LOG_BYTES:
            self._log.replace(self._log.with_suffix(".log.1"))
        log = self.open("postgres.log", os.O_APPEND)
        try:
            self._log_start = os.fstat(log).st_size
            return user.launch([reachable_programs(user) / command[0], *command[1:]], log, inherit)
        finally:
            os.close(log)

    def failure(self, what: str) -> StoreError:
        """What failed, with what the last program said: the log since it was started."""
        with self._log.open(errors="replace") as log:
            log.seek(self._log_start)
            words = [_STAMP.sub("", line.strip()) for line in log if "FATAL:  the database system is" not in line]
        causes = [line for line in words if _TELLING.search(line)][:3] or words[-3:] or ["it left no message"]
        free_megabytes = shutil.disk_usage(self.directory).free // 2**20
        return StoreError(
            f"Postgres in {self.directory} {what}: {' / '.join(causes)} "
            f"(free there: {free_megabytes} MB, log: {self._log}); mend that, "
            "choose another folder with SPECWATCH_DATA, or set DATABASE_URL"
        )

    def clear_leftovers(self, user: ServerUser) -> None:
        """Make the socket's folder and remove what a killed server left; only for who holds the cluster's lock."""
        self._own_socket_folder(user)
        for stale in (self.path / "postmaster.pid", self.sockets / SOCKET, self.sockets / f"{SOCKET}.lock"):
            stale.unlink(missing_ok=True)

    def _initialise(self, user: ServerUser) -> None:
        draft = self.directory / "postgres.new"
        if draft.exists():
            with folder_lock(draft, INITDB_SECONDS):  # the initdb of a killed process may still be at work
                shutil.rmtree(draft)
        draft.mkdir(mode=0o700)
        with folder_lock(draft) as lock, tempfile.TemporaryFile() as secret:
            user.own(lock)
            user.own(secret.fileno())
            secret.write(self._new_password())
            secret.seek(0)
            self._initdb(user, visible(draft, user, lock), lock, secret.fileno())
            draft.rename(self.path)

    def _initdb(self, user: ServerUser, draft: str, lock: int, secret: int) -> None:
        command: Command = ["initdb", f"--pgdata={draft}", f"--username={ROLE}", f"--pwfile=/dev/fd/{secret}"]
        command += ["--auth=scram-sha-256", "--no-sync", "--locale=C", "--encoding=UTF8"]
        with self.run(user, command, lock, secret) as initdb:
            try:
                initdb.wait(INITDB_SECONDS)
            except BaseException:
                initdb.kill()
                raise
        if initdb.returncode != 0:
            raise self.failure("could not be initialised")

    def _new_password(self) -> bytes:
        self._password_file.unlink(missing_ok=True)
        password = secrets.token_hex(24).encode()
        with os.fdopen(self.open(self._password_file.name), "wb") as file:
            file.write(password)
        return password

    def _socket_folder(self) -> Path:
        """The cluster, or a short folder where its path is no address: too long, or with `,` and the like."""
        path = str(self.path / SOCKET)
        if len(path) <= _SOCKET_PATH_BYTES and re.fullmatch(r"[A-Za-z0-9 _./+@~-]+", path):
            return self.path
        digest = hashlib.sha256(os.fsencode(self.directory)).hexdigest()
        return Path("/tmp") / f"specwatch-{digest[:16]}"  # noqa: S108 TMPDIR may differ among the users of one server

    def _own_socket_folder(self, user: ServerUser) -> None:
        if not self.sockets.exists():
            self.sockets.mkdir(mode=0o700)
            fd = os.open(self.sockets, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            user.own(fd)
            os.close(fd)
        found = self.sockets.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != (os.geteuid() if user.uid is None else user.uid):
            raise StoreError(f"{self.sockets} belongs to somebody else: remove it, or choose a shorter SPECWATCH_DATA")


def visible(folder: Path, user: ServerUser, fd: int) -> str:
    """The folder as the server's user reaches it: on Linux by its open descriptor, whoever may enter its parents."""
    return f"/proc/self/fd/{fd}" if user.uid is not None and sys.platform == "linux" else str(folder)


@contextmanager
def folder_lock(folder: Path, wait_seconds: float = 0.0) -> Iterator[int]:
    """Hold the lock that programs at work in `folder` inherit: whoever has it knows that none of them runs."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        if not within(wait_seconds, lambda: try_lock(fd)):
            raise BlockingIOError(f"a Postgres program is still at work in {folder}")
        yield fd
    finally:
        os.close(fd)


def try_lock(fd: int) -> bool:
    """Take the exclusive lock of an open file if nobody else holds it in any form."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def within(seconds: float, condition: Callable[[], bool]) -> bool:
    """Whether `condition` came true in that time; asked every 20 ms, and at least once."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True
