"""The demo, as `make run` starts it."""

from __future__ import annotations

import signal
import socket
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.acceptance.processes import ROOT, Home, eventually, free_port
from tests.acceptance.stored import count, jobs, runs

if TYPE_CHECKING:
    from pathlib import Path

    from monitor.store.database import Database

pytestmark = pytest.mark.timeout(240)


def test_the_demo_shows_an_incident_that_opens_and_resolves(tmp_path: Path) -> None:
    """On its own Postgres and the example that comes with Specwatch, but for its ports, within its three minutes."""
    home = Home(tmp_path, None)
    for name in ("routes.yaml", "alerting.yaml"):
        text = (ROOT / name).read_text().replace(":8501]", f":{free_port()}]").replace(":8502]", f":{free_port()}]")
        (tmp_path / name).write_text(text)
    demo = home.run("demo", "--once", "--listen", f"127.0.0.1:{free_port()}", timeout=220)
    assert demo.returncode == 0, demo.stdout + demo.stderr
    assert "PAGE demo-chat · coding: acceptance length" in demo.stdout
    assert "RESOLVED demo-chat · coding: acceptance length is back" in demo.stdout
    assert demo.stdout.index("PAGE") < demo.stdout.index("RESOLVED")
    assert "Traceback" not in demo.stderr
    assert "PAGE demo-code" not in demo.stdout
    assert "WARN demo-code" not in demo.stdout


def test_a_demo_that_is_stopped_leaves_nothing_in_the_store(home: Home, database: Database) -> None:
    text = (
        (ROOT / "routes.yaml").read_text().replace(":8501]", f":{free_port()}]").replace(":8502]", f":{free_port()}]")
    )
    (home.directory / "routes.yaml").write_text(text)
    command = home.command("demo", "--listen", f"127.0.0.1:{free_port()}")
    with subprocess.Popen(command, cwd=home.directory, env=home.environment, stdout=subprocess.PIPE, text=True) as demo:
        eventually(lambda: runs(database), "it probes")
        demo.send_signal(signal.SIGINT)
        out, _ = demo.communicate(timeout=60)
    assert (demo.returncode, "Traceback" in out) == (0, False)
    assert [count(database, table) for table in ("runs", "samples", "slots", "baselines")] == [0, 0, 0, 0]
    assert jobs(database) == []


def test_a_port_in_use_is_told_with_its_route_before_anything_is_forgotten(home: Home) -> None:
    """What listens there may be a server of the user's, and the route's history the user's too."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        text = (ROOT / "routes.yaml").read_text().replace(":8501]", f":{port}]").replace(":8502]", f":{free_port()}]")
        (home.directory / "routes.yaml").write_text(text)
        demo = home.run("demo", "--once", "--listen", f"127.0.0.1:{free_port()}", timeout=60)
    assert (demo.returncode, demo.stdout) == (2, "")
    assert f"port {port} of route demo-chat in routes.yaml: Address already in use" in demo.stderr
    assert "Traceback" not in demo.stderr


def test_a_route_elsewhere_is_never_simulated_whatever_its_name(home: Home) -> None:
    home.receivers([{"name": "log", "log": {}}])
    (home.directory / "routes.yaml").write_text("routes: [{name: demo-chat, replicas: [http://vllm-0:8000]}]")
    demo = home.run("demo", "--once", timeout=60)
    assert demo.returncode == 2
    assert "no route named demo-… at 127.0.0.1" in demo.stderr
