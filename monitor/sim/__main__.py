"""`python -m monitor.sim`: one simulated server as a process of its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from monitor.errors import UsageError
from monitor.resources import resource_directory
from monitor.sim.admin import drafter_from
from monitor.sim.behaviour import Behaviour, from_json
from monitor.sim.domains import domains_in
from monitor.sim.model import Drafter, Target
from monitor.sim.server import ServerConfig, SimulatedServer
from monitor.sim.serving import serve_forever

if TYPE_CHECKING:
    from collections.abc import Callable

_FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)
_TRY = """\
\b
Then, with the URL that it prints:
  specwatch probe URL                                  what it does now
  curl URL/_sim                                        what it is and has counted
\b
and to change it (POST /_sim takes these commands, one or several):
  curl -X POST URL/_sim -d '{"drafter": {"name": "worse", "default_acceptance": [0.5, 0.5, 0.5, 0.5]}}'
  curl -X POST URL/_sim -d '{"acceptance": {"roleplay": [0.3]}}'
  curl -X POST URL/_sim -d '{"behave": {"step_time_seconds": 0.01}}'
  curl -X POST URL/_sim -d '{"fault": {"kind": "abort", "times": 3}}'
  curl -X POST URL/_sim -d '{"restart": {"version": "0.33.0"}}'
  curl -X POST URL/_sim -d '{"reset": true}'           what it was started with
"""


def _from(build: Callable[[Any], Any]) -> Callable[[click.Context, click.Parameter, str], Any]:
    """A callback that makes a value of an option's JSON, or says what is wrong with it."""

    def read(_ctx: click.Context, _param: click.Parameter, value: str) -> Any:
        try:
            return build(json.loads(value) if value != "none" else None)
        except (ValueError, TypeError, UsageError) as error:
            raise click.BadParameter(str(error)) from None

    return read


def _drafter(document: dict[str, Any] | None) -> Drafter:
    return Drafter(method=None) if document is None else drafter_from(document, Drafter())


@click.command(epilog=_TRY, context_settings={"max_content_width": 110, "help_option_names": ["-h", "--help"]})
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", default=0, help="0, the default, takes a free port; the first line of output is the URL.")
@click.option("--model", default="tiny", show_default=True, help="Served model name.")
@click.option("--target", default="models/tiny-target", show_default=True, help="Decides the answers.")
@click.option(
    "--drafter",
    default="{}",
    callback=_from(_drafter),
    metavar="JSON",
    help="""Fields of the drafter, e.g. '{"method": "eagle", "num_speculative_tokens": 3}'; or the word none.""",
)
@click.option(
    "--behave",
    default="{}",
    callback=_from(lambda document: from_json(Behaviour, document or {})),
    metavar="JSON",
    help="""Fields of the behaviour, e.g. '{"step_time_seconds": 0.01}'.  [default: as fast as possible]""",
)
@click.option("--probes", type=_FOLDER, help="Prompt sets whose domains it recognises.  [default: Specwatch's own]")
@click.option("--engine-version", "version", default="0.32.0", show_default=True, help="Version it says it has.")
@click.option("--max-model-len", default=8192, show_default=True, help="Longest prompt and answer together, in tokens.")
@click.option("--max-num-seqs", default=32, show_default=True, help="Requests at once; more of them wait.")
@click.option("--engines", default=1, show_default=True, help="Data-parallel engines.")
@click.option(
    "--per-request-counts",
    type=click.Choice(["none", "summary", "detailed"]),
    default="detailed",
    show_default=True,
    help="As --per-request-spec-decode-metrics of vLLM.",
)
@click.option("--api-key", help="Required under /v1 when given.")
@click.option("--dev-mode", is_flag=True, help="Serve /server_info.")
def main(
    host: str, port: int, target: str, drafter: Drafter, behave: Behaviour, probes: Path | None, **options: Any
) -> None:
    """Serve a simulated vLLM, without a model or a GPU, until interrupted."""
    domains = domains_in(probes or resource_directory("probes"))
    config = ServerConfig(target=Target(target), drafter=drafter, domains=domains, **options)
    serve_forever(SimulatedServer(config, behave), host=host, port=port, ready=click.echo)


if __name__ == "__main__":
    main()
