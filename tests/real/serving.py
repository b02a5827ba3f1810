"""`specwatch serve` as a process with a store and configuration of its own, and someone it tells about incidents."""

from __future__ import annotations

import json
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Self

import httpx
import yaml

from tests.real.familiar import write_familiar_sets
from tests.real.product import COMMAND, environment, eventually, specwatch
from tests.real.servers import free_port

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

ROUTE = "chat-prod"
DOMAINS = ("coding", "math")
BASELINE_RUNS = 3
STALL_SECONDS = 4
SETTINGS: dict[str, Any] = {
    "every": "30s",
    "confirm_after": ["5s", "10s"],
    "max_tokens": 100,
    "concurrency": 8,
    "min_prompts": 20,
    "timeouts": {"connect": "5s", "first_token": "30s", "stall": f"{STALL_SECONDS}s", "total": "90s"},
    "domains": list(DOMAINS),
    "baseline": {"approve_after": BASELINE_RUNS},
    "labels": {"team": "chat"},
}
"""A compressed day: what takes 40 minutes in production takes half a minute."""

WHAT_WE_ADVISE = ("--no-enable-per-request-metrics", "--per-request-spec-decode-metrics", "summary")
"""The flags of a server that docs/vllm.md names."""


class Hook:
    """A web hook on loopback; `bodies` are what it was sent of incidents, in order, `notes` what of bumps."""

    def __init__(self) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.notes: list[dict[str, Any]] = []
        hook = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                length = int(self.headers["Content-Length"])
                body = json.loads(self.rfile.read(length))
                (hook.notes if body["status"] == "note" else hook.bodies).append(body)
                self.send_response(204)
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002  (the name is http.server's)
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/hook"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


class Serving:
    """`with Serving(directory, replica, hook) as serving`: one route to one replica, familiar prompts, a page rule."""

    def __init__(
        self,
        directory: Path,
        replica: str,
        hook: Hook,
        settings: Mapping[str, Any] | None = None,
        alerting: Mapping[str, Any] | None = None,
    ) -> None:
        """`settings` of the route and keys of `alerting` take the place of those here."""
        self.directory = directory
        self.log_path = directory / "serve.log"
        self.address = f"127.0.0.1:{free_port()}"
        write_familiar_sets(directory / "prompts", *DOMAINS)
        route = {"name": ROUTE, "replicas": [replica], **SETTINGS, **(settings or {})}
        defaults = {
            "rules": [{"name": "acceptance-drop", "metric": "acceptance_length", "drop": "15%", "severity": "page"}],
            "receivers": [{"name": "hook", "webhook": {"url": hook.url}}],
            # A server that stalls and is started again is away for more than two periods of these 30 s.
            "stale": {"after": 20},
        }
        (directory / "routes.yaml").write_text(yaml.safe_dump({"prompts": "prompts", "routes": [route]}))
        (directory / "alerting.yaml").write_text(yaml.safe_dump(defaults | dict(alerting or {})))
        self._environment = {"SPECWATCH_DATA": str(directory / "data"), "SPECWATCH_CONFIG": str(directory)}

    def __enter__(self) -> Self:
        with self.log_path.open("ab") as log:
            command = [*COMMAND, "serve", "--listen", self.address, "--grace", "5"]
            self.process = subprocess.Popen(command, env=environment(**self._environment), stdout=log, stderr=log)
        eventually(self._answers, "serve answers")
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def wait_for_baselines(self) -> None:
        """Returns once every domain has an approved one."""
        eventually(
            lambda: {row["domain"] for row in self.ask("baseline", "list") if row["approved_at"]} == set(DOMAINS),
            "a baseline of every domain is approved",
            seconds=400,
            pause_seconds=2,
        )

    def begin_again(self) -> None:
        """Another `serve` in the place of this one, on the same store."""
        self.__exit__()
        self.__enter__()

    def _answers(self) -> bool:
        assert self.process.poll() is None, self.log_path.read_text()
        try:
            return httpx.get(f"http://{self.address}/readyz", timeout=5).status_code == 200
        except httpx.HTTPError:
            return False

    def ask(self, *arguments: str) -> Any:
        """What `specwatch ARGUMENTS --format json` answers from the same store."""
        result = specwatch(*arguments, "--format", "json", **self._environment)
        assert result.returncode == 0, result.stderr
        return json.loads(result.stdout)

    def runs_after(self, run_id: int) -> list[dict[str, Any]]:
        """Runs stored after that one, oldest first."""
        return [run for run in reversed(self.ask("runs", "--limit", "200")) if run["id"] > run_id]

    def last_run_id(self) -> int:
        """Id of the latest run, 0 before the first."""
        return max((run["id"] for run in self.ask("runs", "--limit", "1")), default=0)
