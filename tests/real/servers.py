"""A real vLLM on the CPU as a context manager: started, killed in the ways production kills it, never left behind.

    with RealServer("draft") as server:
        httpx.get(f"{server.base_url}/metrics")

A server takes about 30 s to start, 2.5 GB of memory and both cores of a small machine: take one from the `servers`
fixture, which keeps at most two alive, unless the test harms it.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Self

import httpx

if TYPE_CHECKING:
    from collections.abc import Iterator

Kind = Literal["plain", "draft", "ngram", "eagle", "suffix"]

ROOT = Path(__file__).resolve().parents[2]
MODELS = Path(__file__).resolve().parent / "models"
CACHE = ROOT / ".cache" / "real-vllm"
SERVED_MODEL = "tiny"
MAX_MODEL_LEN = 16384
START_TIMEOUT_SECONDS = 500.0  # 25–35 s on a quiet machine; a minute or two on a busy one

# K, the number of draft tokens, by kind; EAGLE's head was trained two steps deep and gains nothing past 3.
DRAFT_TOKENS: dict[Kind, int] = {"draft": 4, "ngram": 4, "eagle": 3, "suffix": 8}

ENVIRONMENT = {
    "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB: 500,000 tokens of the tiny target
    "VLLM_CPU_OMP_THREADS_BIND": "auto",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
}

# Kills the group argv[1] once its stdin closes, that is when this process ends in whatever way, kill -9 included.
_GUARD = """
import os, signal, sys
sys.stdin.read()
try:
    os.killpg(int(sys.argv[1]), signal.SIGKILL)
except ProcessLookupError:
    pass
"""


def vllm_python() -> Path | None:
    """The interpreter that can import vLLM: SPECWATCH_VLLM_PYTHON, else the one `install.py` made, else None."""
    if given := os.environ.get("SPECWATCH_VLLM_PYTHON"):
        return Path(given)
    installed = ROOT / ".venv-vllm" / "bin" / "python"
    return installed if installed.exists() else None


def speculative_config(
    kind: Kind, drafter: Path | None = None, draft_tokens: int | None = None
) -> dict[str, object] | None:
    """The `--speculative-config` of a kind, None for plain; `drafter` replaces the model of draft and eagle."""
    if kind == "plain":
        return None
    tokens = {"num_speculative_tokens": draft_tokens or DRAFT_TOKENS[kind]}
    match kind:
        case "draft":
            return {"method": "draft_model", "model": str(drafter or MODELS / "tiny-draft"), **tokens}
        case "eagle":
            return {"method": "eagle", "model": str(drafter or MODELS / "tiny-eagle"), **tokens}
        case "ngram":
            return {"method": "ngram", "prompt_lookup_max": 4, "prompt_lookup_min": 2, **tokens}
        case "suffix":  # without the cache of past answers, which would make each test depend on those before it
            return {"method": "suffix", "suffix_decoding_max_cached_requests": 0, **tokens}


def free_port() -> int:
    """A TCP port of loopback that nothing listens on at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class ServerDiedError(RuntimeError):
    """The server ended or did not become healthy in time; the message ends with the tail of its log."""


class RealServer:
    """One `vllm.entrypoints.openai.api_server` in a process group of its own; `start()` or `with` to run it.

    kind         plain, draft, ngram, eagle or suffix
    port         None picks a free one; it stays the same over `restart`
    target       a model directory in place of tiny-target, as from `variants.deep_target`
    drafter      one in place of the kind's own (draft and eagle), as from `variants.graded_drafter`
    draft_tokens K in place of the kind's own
    flags        more command-line flags, after ours and so overriding them
    dev_mode     also serve `/server_info`, `/reset_prefix_cache` and the like
    environment  more environment variables
    eager        False compiles the models: 15–30 s slower to start, faster after
    dtype        in float32 greedy output is the same whatever the drafter; in bfloat16, which production uses, near
                 ties break by the shape of the batch, and a quarter of the answers differ from the plain server's
    """

    def __init__(
        self,
        kind: Kind,
        *,
        port: int | None = None,
        target: Path = MODELS / "tiny-target",
        drafter: Path | None = None,
        draft_tokens: int | None = None,
        flags: tuple[str, ...] = (),
        dev_mode: bool = False,
        environment: dict[str, str] | None = None,
        eager: bool = True,
        dtype: Literal["float32", "bfloat16"] = "float32",
        log_directory: Path = CACHE / "logs",
    ) -> None:
        self.kind: Kind = kind
        self.port = port or free_port()
        self.base_url = f"http://127.0.0.1:{self.port}"
        self.target = target
        self.drafter = drafter
        self.draft_tokens = None if kind == "plain" else draft_tokens or DRAFT_TOKENS[kind]
        self.flags = flags
        self.dev_mode = dev_mode
        self.environment = environment or {}
        self.eager = eager
        self.dtype = dtype
        self.log_path = log_directory / f"{kind}-{self.port}.log"
        self.start_seconds: float | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._guard: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        drafter = f" with {self.drafter.name}" if self.drafter else ""
        return f"<{self.kind} server{drafter} at {self.base_url}>"

    def start(self) -> Self:
        """Start and return once `/health` answers 200; raise ServerDiedError with the log's tail otherwise."""
        self.spawn()
        try:
            self.wait_until_healthy()
        except BaseException:
            self.stop()
            raise
        return self

    def spawn(self) -> None:
        """Start the processes without waiting, for tests that watch a server come up."""
        if self._process is not None:
            raise RuntimeError(f"{self!r} is already started")
        self.log_path.parent.mkdir(parents=True, exist_ok=True)
        self._started_at = time.monotonic()
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                self.command(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env=self._environment(),
            )
        self._guard = subprocess.Popen(
            [sys.executable, "-c", _GUARD, str(self._process.pid)], stdin=subprocess.PIPE, start_new_session=True
        )

    def command(self) -> list[str]:
        """The whole command line."""
        python = vllm_python()
        if python is None:
            raise RuntimeError("no interpreter with vLLM: run tests/real/install.py or set SPECWATCH_VLLM_PYTHON")
        command = [str(python), "-m", "vllm.entrypoints.openai.api_server", "--model", str(self.target)]
        command += ["--served-model-name", SERVED_MODEL, "--host", "127.0.0.1", "--port", str(self.port)]
        command += ["--max-model-len", str(MAX_MODEL_LEN), "--max-num-seqs", "32", "--dtype", self.dtype]
        command += ["--enforce-eager"] if self.eager else []
        speculative = speculative_config(self.kind, self.drafter, self.draft_tokens)
        if speculative is not None:  # a plain server refuses to start with the per-request flags
            command += ["--speculative-config", json.dumps(speculative)]
            command += ["--enable-per-request-metrics", "--per-request-spec-decode-metrics", "detailed"]
        return [*command, *self.flags]

    def wait_until_healthy(self, timeout_seconds: float = START_TIMEOUT_SECONDS) -> None:
        """Return once `/health` answers 200; raise ServerDiedError if the process ends or the time is over."""
        deadline = self._started_at + timeout_seconds
        while time.monotonic() < deadline:
            if self._process is None or self._process.poll() is not None:
                raise ServerDiedError(f"{self!r} ended while starting; its log ends:\n{self.log_tail()}")
            with suppress(httpx.HTTPError):
                if httpx.get(f"{self.base_url}/health", timeout=2).status_code == 200:
                    self.start_seconds = time.monotonic() - self._started_at
                    return
            time.sleep(0.2)
        raise ServerDiedError(f"{self!r} not healthy after {timeout_seconds:.0f} s; its log ends:\n{self.log_tail()}")

    def stop(self) -> None:
        """Kill the whole process group and return when none of it is left; safe to call twice."""
        if self._process is not None:
            group = self._process.pid
            with suppress(ProcessLookupError):
                os.killpg(group, signal.SIGKILL)
            self._process.wait()
            while any(_is_alive(pid) for pid in _group_members(group)):
                time.sleep(0.02)
        if self._guard is not None and self._guard.stdin is not None:
            self._guard.kill()
            self._guard.stdin.close()
            self._guard.wait()
        self._process = self._guard = None

    def restart(
        self, *, drafter: Path | None = None, kind: Kind | None = None, draft_tokens: int | None = None
    ) -> Self:
        """Stop and start on the same port, with another drafter, kind or K where given; counters begin at zero."""
        self.stop()
        if kind is not None and kind != self.kind:
            self.kind, self.drafter, self.draft_tokens = kind, None, DRAFT_TOKENS.get(kind)
        self.drafter = drafter or self.drafter
        self.draft_tokens = draft_tokens or self.draft_tokens
        return self.start()

    def kill_api_server(self, signal_number: int = signal.SIGKILL) -> None:
        """Kill the HTTP process alone: open streams break off without an end.

        With SIGTERM they end with finish reason `abort` and no counts, or hang silently.
        """
        os.kill(self._running().pid, signal_number)

    def kill_engine(self) -> None:
        """Kill -9 the engine process: open streams get an error event with code 500, then `[DONE]`."""
        os.kill(self.processes()["VLLM::EngineCore"], signal.SIGKILL)

    def freeze_engine(self) -> None:
        """Stop the engine process without ending it: open streams fall silent, and `/health` still answers 200."""
        os.kill(self.processes()["VLLM::EngineCore"], signal.SIGSTOP)

    def kill_worker(self) -> None:
        """Kill -9 the worker that runs the model; to a client it looks like the engine's death."""
        os.kill(self.processes()["VLLM::Worker"], signal.SIGKILL)

    def processes(self) -> dict[str, int]:
        """Process ids of the group by the first word of the command line (`VLLM::EngineCore`, `VLLM::Worker` …)."""
        named = {}
        for pid in _group_members(self._running().pid):
            with suppress(OSError, IndexError):
                named[Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").split()[0].decode()] = pid
        return named

    def memory_bytes(self) -> int:
        """Proportional set size of the whole group."""
        total_kib = 0
        for pid in _group_members(self._running().pid):
            with suppress(OSError):
                rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
                total_kib += next(int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Pss:"))
        return total_kib * 1024

    def log_tail(self, lines: int = 40) -> str:
        """The last lines the server printed."""
        if not self.log_path.exists():
            return "(no log)"
        return "\n".join(self.log_path.read_text(errors="replace").splitlines()[-lines:])

    @property
    def is_running(self) -> bool:
        """Whether the HTTP process is alive."""
        return self._process is not None and self._process.poll() is None

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise RuntimeError(f"{self!r} is not started")
        return self._process

    def _environment(self) -> dict[str, str]:
        ours_alone = {"PYTHONPATH", "VLLM_SERVER_DEV_MODE"}
        inherited = {name: value for name, value in os.environ.items() if name not in ours_alone}
        dev_mode = {"VLLM_SERVER_DEV_MODE": "1"} if self.dev_mode else {}
        return inherited | ENVIRONMENT | dev_mode | self.environment


@contextmanager
def realtime() -> Iterator[bool]:
    """Run the body of a client ahead of the server's threads, so that its clock means something on two cores.

    Yields whether the system allowed it. Processes started inside run at normal priority: give a child `chrt -r 1` of
    its own.
    """
    before = os.sched_getscheduler(0)
    try:
        os.sched_setscheduler(0, os.SCHED_RR | os.SCHED_RESET_ON_FORK, os.sched_param(1))
    except PermissionError:
        yield False
        return
    try:
        yield True
    finally:
        os.sched_setscheduler(0, before, os.sched_param(0))


def _group_members(group: int) -> list[int]:
    pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    return [pid for pid in pids if _group_of(pid) == group]


def _group_of(pid: int) -> int | None:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return None


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
