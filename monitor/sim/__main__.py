"""`python -m monitor.sim`: one simulated server as a process of its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from monitor.sim.admin import drafter_from
from monitor.sim.behaviour import Behaviour, from_json
from monitor.sim.domains import domains_in
from monitor.sim.model import Drafter, Target
from monitor.sim.server import ServerConfig, SimulatedServer
from monitor.sim.serving import serve_forever

_DRAFTER_HELP = """Fields of the drafter as JSON, e.g. '{"method": "eagle", "num_speculative_tokens": 3}', or none."""
_FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True)
@click.option("--port", default=0, help="0, the default, takes a free port; the first line of output names it.")
@click.option("--model", default="tiny", show_default=True, help="Served model name.")
@click.option("--target", default="models/tiny-target", show_default=True, help="Decides the answers.")
@click.option("--drafter", default="{}", help=_DRAFTER_HELP)
@click.option("--behave", default="{}", help="""Fields of the behaviour as JSON, e.g. '{"step_time_seconds": 0.01}'.""")
@click.option("--probes", type=_FOLDER, help="Folder of prompt sets whose domains to recognise.")
@click.option("--engine-version", "version", default="0.32.0", show_default=True)
@click.option("--max-model-len", default=8192, show_default=True)
@click.option("--max-num-seqs", default=32, show_default=True)
@click.option("--engines", default=1, show_default=True, help="Data-parallel engines.")
@click.option("--per-request-counts", type=click.Choice(["none", "summary", "detailed"]), default="detailed")
@click.option("--api-key", help="Required under /v1 when given.")
@click.option("--dev-mode", is_flag=True, help="Serve /server_info.")
def main(host: str, port: int, target: str, drafter: str, behave: str, probes: Path | None, **options: Any) -> None:
    """Serve a simulated vLLM until interrupted; script it with POST /_sim."""
    chosen = Drafter(method=None) if drafter == "none" else drafter_from(json.loads(drafter), Drafter())
    domains = domains_in(probes) if probes else {}
    config = ServerConfig(target=Target(target), drafter=chosen, domains=domains, **options)
    server = SimulatedServer(config, from_json(Behaviour, json.loads(behave)))
    serve_forever(server, host=host, port=port, ready=click.echo)


if __name__ == "__main__":
    main()
