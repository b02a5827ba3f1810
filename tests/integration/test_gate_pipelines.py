"""`deploy/pipelines`: what is ready to copy parses, names options that exist, and lets go on after a pass alone."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import uvicorn
import yaml

from monitor.cli.gate import gate
from monitor.config.gate_request import GateRequest
from monitor.sim.server import ServerConfig, SimulatedServer
from tests.factories import ROUTE
from tests.integration.gate_bed import BEARER, WORSE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tests.integration.gate_bed import Bed

PIPELINES = Path(__file__).parents[2] / "deploy/pipelines"
BY_COMMAND = ("Jenkinsfile", "argo-job.yaml", "gate.sh", "github-actions.yml", "gitlab-ci.yml")
TOLD = {0: "passed", 10: "regression", 11: "cannot tell", 12: "not measured", 13: "not measured", 1: "not measured"}


@pytest.fixture
def same() -> Iterator[str]:
    with SimulatedServer(ServerConfig(seed=1)).run_in_thread() as url:
        yield url


@pytest.fixture
def worse() -> Iterator[str]:
    with SimulatedServer(ServerConfig(drafter=WORSE)).run_in_thread() as url:
        yield url


def yaml_of(name: str) -> Any:
    return yaml.safe_load((PIPELINES / name).read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", BY_COMMAND)
def test_every_option_of_an_example_is_one_of_the_command(name: str) -> None:
    used = set(re.findall(r"(--[a-z-]+)", (PIPELINES / name).read_text(encoding="utf-8")))
    known = {option for parameter in gate.commands["run"].params for option in parameter.opts}
    assert {"--candidate", "--against", "--timeout"} <= used <= known


def with_a_gate_that_ends_with(code: int, directory: Path, **more: str) -> dict[str, str]:
    """An environment whose `specwatch` writes a verdict in one line, and the file it is asked for, and ends so."""
    command = directory / "specwatch"
    command.write_text(f'#!/bin/sh\nfor last; do :; done\necho "gate: code {code}" | tee "$last"\nexit {code}\n')
    command.chmod(0o755)
    return {"PATH": f"{directory}{os.pathsep}{os.environ['PATH']}", **more}


@pytest.mark.parametrize(("code", "told"), TOLD.items())
def test_the_shell_script_ends_with_the_gates_code_and_says_what_to_do(code: int, told: str, tmp_path: Path) -> None:
    command = ["sh", str(PIPELINES / "gate.sh"), "http://candidate", "http://production"]
    environment = with_a_gate_that_ends_with(code, tmp_path)
    result = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert result.returncode == code
    assert told in result.stdout + result.stderr


def test_the_shell_script_asks_for_a_gate_of_our_own(production: str, tmp_path: Path) -> None:
    """The candidate is the very server that serves now: refused at once, and no pass."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    command = ["sh", str(PIPELINES / "gate.sh"), production, production]
    result = subprocess.run(
        command, env={"PATH": path}, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=100
    )
    verdict = json.loads((tmp_path / "gate.json").read_text(encoding="utf-8"))
    assert (result.returncode, verdict["exit_code"], verdict["reason"]) == (13, 13, "same_server")


@pytest.mark.parametrize(("code", "annotation"), [(0, None), (10, "::error title="), (11, "::warning title=")])
def test_github_gets_a_summary_and_an_annotation(code: int, annotation: str | None, tmp_path: Path) -> None:
    (step,) = yaml_of("github-actions.yml")["jobs"]["acceptance-gate"]["steps"]
    environment = with_a_gate_that_ends_with(
        code, tmp_path, CANDIDATE_URL="http://c", PRODUCTION_URL="http://p", GITHUB_STEP_SUMMARY="summary.md"
    )
    command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
    result = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert result.returncode == code
    assert (tmp_path / "summary.md").read_text() == f"gate: code {code}\n"
    annotations = [line for line in result.stdout.splitlines() if line.startswith("::")]
    assert [line.startswith(annotation or "") for line in annotations] == [True] * (code != 0)


def test_gitlab_keeps_the_report_of_a_gate_that_did_not_pass() -> None:
    job = yaml_of("gitlab-ci.yml")["acceptance-gate"]
    assert job["artifacts"] == {"when": "always", "paths": ["gate.xml"], "reports": {"junit": "gate.xml"}}
    assert job["script"][0].endswith("--format junit --out gate.xml")
    assert "allow_failure" not in job


def test_argos_job_is_not_tried_again() -> None:
    (metric,) = yaml_of("argo-job.yaml")["spec"]["metrics"]
    job = metric["provider"]["job"]["spec"]
    assert (metric["count"], metric["failureLimit"], job["backoffLimit"]) == (1, 0, 0)
    assert job["template"]["spec"]["restartPolicy"] == "Never"


def filled(value: Any, arguments: Mapping[str, str]) -> Any:
    """A template with its arguments, as the controller fills it."""
    text = json.dumps(value)
    for name, argument in arguments.items():
        text = text.replace("{{args." + name + "}}", argument)
    assert "{{" not in text
    return json.loads(text)


def holds(condition: str, result: Mapping[str, Any]) -> bool:
    """Argo's expressions, as far as ours use them, are Python's but for one word."""
    return bool(eval(condition.replace("&&", "and"), {"__builtins__": {}}, {"result": SimpleNamespace(**result)}))


class Argo:
    """One analysis of the web provider: every measurement sends the same request, and its conditions decide."""

    def __init__(self, bed: Bed, candidate: str) -> None:
        (self.metric,) = yaml_of("argo-web.yaml")["spec"]["metrics"]
        arguments = {"route": ROUTE, "candidate": candidate, "revision": "5f7c", "token": "s3cret"}
        self.web = filled(self.metric["provider"]["web"], arguments)
        self.bed = bed

    async def measure(self) -> str:
        headers = {header["key"]: header["value"] for header in self.web["headers"]}
        path = "/" + self.web["url"].split("/", 3)[3]
        answer = await self.bed.client.request(self.web["method"], path, headers=headers, json=self.web["jsonBody"])
        assert answer.is_success, answer.text
        passed, failed = (holds(self.metric[f"{name}Condition"], answer.json()) for name in ("success", "failure"))
        return "Successful" if passed else "Failed" if failed else "Inconclusive"


async def test_argo_waits_for_the_gate_and_takes_its_pass(bed: Bed, same: str) -> None:
    argo = Argo(bed, same)
    assert [await argo.measure(), await argo.measure()] == ["Inconclusive"] * 2
    assert len(bed.queued()) == 1
    await bed.work(1)
    assert await argo.measure() == "Successful"


async def test_argo_fails_what_has_not_passed(bed: Bed, worse: str) -> None:
    argo = Argo(bed, worse)
    assert await argo.measure() == "Inconclusive"
    await bed.work(1)
    assert bed.gate(1)["verdict"] == "fail"
    assert await argo.measure() == "Failed"


async def test_argo_fails_a_gate_that_was_cancelled(bed: Bed, same: str) -> None:
    argo = Argo(bed, same)
    await argo.measure()
    await bed.client.delete("/api/v1/gates/1")
    assert await argo.measure() == "Failed"


async def test_flaggers_two_hooks_ask_for_one_gate(bed: Bed, same: str) -> None:
    hooks = yaml_of("flagger.yaml")["spec"]["analysis"]["webhooks"]
    assert [hook["type"] for hook in hooks] == ["confirm-traffic-increase", "rollback"]
    statuses = []
    for hook in hooks:
        GateRequest.model_validate({**hook["metadata"], "prompts": int(hook["metadata"]["prompts"])})
        metadata = {**hook["metadata"], "route": ROUTE, "candidate": same, "against": "production"}
        sent = {"name": "chat", "namespace": "prod", "phase": "Progressing", "checksum": "1", "metadata": metadata}
        path = "/" + hook["url"].split("/", 3)[3]
        statuses.append((await bed.client.post(path, json=sent)).status_code)
    assert (statuses, len(bed.queued())) == ([409, 409], 1)


@pytest.mark.skipif(shutil.which("curl") is None, reason="the script needs curl")
@pytest.mark.parametrize(("candidate", "code"), [("same", 0), ("worse", 10)])
async def test_the_script_over_http_waits_and_ends_with_the_gates_code(
    bed: Bed, candidate: str, code: int, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    listening = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(bed.app, log_level="warning", lifespan="off"))
    serving = asyncio.create_task(server.serve(sockets=[listening]))
    environment = {
        "PATH": os.environ["PATH"],
        "SPECWATCH_URL": f"http://127.0.0.1:{listening.getsockname()[1]}",
        "SPECWATCH_TOKEN": BEARER["Authorization"].removeprefix("Bearer "),
        "GATE_POLL_SECONDS": "1",
    }
    asking = await asyncio.create_subprocess_exec(
        "sh", PIPELINES / "gate-over-http.sh", ROUTE, request.getfixturevalue(candidate), "release 1",
        env=environment, cwd=tmp_path,
    )  # fmt: skip
    while not bed.queued():  # noqa: ASYNC110 - another process asks
        await asyncio.sleep(0.05)
    await bed.work(1)
    assert await asyncio.wait_for(asking.wait(), 60) == code
    assert json.loads((tmp_path / "gate.json").read_text(encoding="utf-8"))["exit_code"] == code
    server.should_exit = True
    await serving
