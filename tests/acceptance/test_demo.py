"""The demo, as `make run` starts it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.acceptance.processes import ROOT, Home, free_port

if TYPE_CHECKING:
    from pathlib import Path

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
    assert "demo-code · " not in demo.stdout
