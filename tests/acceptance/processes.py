"""`specwatch serve` as a real process with files of its own, and waiting for what it does."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import httpx
import yaml

from monitor.sim import Drafter, ServerConfig
from monitor.sim.domains import domains_in

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from monitor.sim import SimulatedServer

ROOT = Path(__file__).parents[2]
PATIENCE_SECONDS = 60.0
"""Far beyond what anything here takes on a busy machine: a test that waits so long has failed."""
PROMPTS = 14
TOPICS = {"coding": "Write a function that sorts list number", "math": "Work out the sum of the first primes up to"}
RULE = {"name": "acceptance-drop", "metric": "acceptance_length", "drop": "15%", "severity": "page"}
Found = TypeVar("Found")


def eventually(look: Callable[[], Found], what: str, seconds: float = PATIENCE_SECONDS) -> Found:
    """The first true result of `look`; fails, saying what did not happen, when there is none in time."""
    deadline = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}"
        time.sleep(0.02)
    return found


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def requests_running(simulator: SimulatedServer) -> int:
    return sum(engine.running for engine in simulator.engines)


class Home:
    """A directory with configuration and prompt sets, where `specwatch` runs with an environment of its own."""

    def __init__(self, directory: Path, database_url: str | None) -> None:
        self.directory = directory
        self.data = directory / "data"
        self._started: list[Serve] = []
        self.urls: tuple[str, ...] = ()
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("DATABASE_URL")},
            "PYTHONPATH": str(ROOT),
            "PYTHONWARNINGS": "always::ResourceWarning",
            "SPECWATCH_CONFIG": str(directory),
            "SPECWATCH_DATA": str(self.data),
        }
        if database_url is not None:
            self.environment["DATABASE_URL"] = database_url
        self._write_prompts()
        self.receivers([{"name": "log", "log": {}}])

    def _write_prompts(self) -> None:
        for domain, topic in TOPICS.items():
            prompts = [
                {"question_id": f"{domain}-{n}", "category": domain, "turns": [f"{topic} {n}."]} for n in range(PROMPTS)
            ]
            file = self.directory / "prompts" / f"{domain}.jsonl"
            file.parent.mkdir(exist_ok=True)
            file.write_text("\n".join(map(json.dumps, prompts)))

    def simulator_settings(self, drafter: Drafter | None = None) -> ServerConfig:
        """A server that knows the prompts' domains."""
        return ServerConfig(drafter=drafter or Drafter(), domains=domains_in(self.directory / "prompts"))

    def routes(self, *urls: str, **settings: Any) -> None:
        """One route per URL, named chat-0 and on; `settings` override those that fit a test. No URL: those before."""
        self.urls = urls = urls or self.urls
        defaults = {
            "every": "1h",
            "confirm_after": ["100ms", "200ms"],
            "max_tokens": 48,
            "domains": ["coding"],
            "timeouts": {"connect": "2s", "first_token": "10s", "stall": "2s", "total": "30s"},
            "baseline": {"approve_after": 2},
            **settings,
        }
        found = [{"name": f"chat-{n}", "replicas": [url], **defaults} for n, url in enumerate(urls)]
        self._write("routes.yaml", {"prompts": "prompts", "routes": found})

    def receivers(self, receivers: Sequence[dict[str, Any]]) -> None:
        self._write("alerting.yaml", {"rules": [RULE], "receivers": list(receivers), "resolve": {"runs": 1}})

    def _write(self, name: str, document: object) -> None:
        (self.directory / name).write_text(yaml.safe_dump(document))

    def serve(self, *options: str, name: str = "serve") -> Serve:
        """A process of `specwatch serve` that answers already; its own errors go to NAME.log."""
        found = Serve(self, name, options)
        self._started.append(found)
        eventually(lambda: found.process.poll() is not None or found.get("/healthz") == 200, "serve answers")
        assert found.process.poll() is None, found.log()
        return found

    def run(self, *arguments: str, timeout: float = PATIENCE_SECONDS) -> subprocess.CompletedProcess[str]:
        """`specwatch ARGUMENTS` to its end."""
        return subprocess.run(
            self.command(*arguments),
            cwd=self.directory,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=timeout,
        )

    def close(self) -> None:
        """Kills what a test left running."""
        for serve in self._started:
            serve.kill()

    @staticmethod
    def command(*arguments: str) -> list[str]:
        return [sys.executable, "-m", "monitor", *arguments]


class Serve:
    """One process of `specwatch serve`."""

    def __init__(self, home: Home, name: str, options: Sequence[str]) -> None:
        self.port = free_port()
        self._log = home.directory / f"{name}.log"
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                home.command("serve", "--listen", f"127.0.0.1:{self.port}", *options),
                cwd=home.directory,
                env=home.environment,
                stdout=log,
                stderr=log,
            )

    def log(self) -> str:
        return self._log.read_text()

    def get(self, path: str) -> int:
        """The status of a page, 0 while nobody answers."""
        try:
            return httpx.get(f"http://127.0.0.1:{self.port}{path}", timeout=10).status_code
        except httpx.TransportError:
            return 0

    def counter(self, name: str) -> float:
        """One of the process's own counters, as /metrics shows it."""
        page = httpx.get(f"http://127.0.0.1:{self.port}/metrics", timeout=10).text
        return next(float(line.split()[1]) for line in page.splitlines() if line.startswith(f"specwatch_{name} "))

    def kill(self) -> None:
        """kill −9."""
        self.process.kill()
        self.process.wait()

    def stop(self, seconds: float = PATIENCE_SECONDS) -> float:
        """SIGTERM; returns how many seconds the end took, which must be a clean one."""
        began = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(seconds)
        assert code == 0, self.log()
        assert "Traceback" not in self.log(), self.log()
        assert "ResourceWarning" not in self.log(), self.log()
        return time.monotonic() - began
