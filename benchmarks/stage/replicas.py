"""Many simulated replicas in one process, each under its own path, so that a hundred routes do not need a hundred.

    python -m stage.replicas COUNT PORT STEP_MILLISECONDS PROBES

Replica n answers under `/r<n>`: an engine, counters and gauges of its own, as `python -m monitor.sim` serves them.
"""

import sys
from pathlib import Path

from starlette.types import Receive, Scope, Send

from monitor.sim import Behaviour, ServerConfig, SimulatedServer
from monitor.sim.domains import domains_in
from monitor.sim.serving import serve_forever


class Replicas:
    """The ASGI application that sends `/r<n>/…` to replica n."""

    def __init__(self, count: int, step_seconds: float, probes: Path) -> None:
        domains, behaviour = domains_in(probes), Behaviour(step_time_seconds=step_seconds)
        self._servers = [SimulatedServer(ServerConfig(domains=domains, seed=n), behaviour) for n in range(count)]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        _, name, rest = scope["path"].split("/", 2)
        server = self._servers[int(name.removeprefix("r"))]
        await server({**scope, "path": f"/{rest}"}, receive, send)


def main() -> None:
    count, port, step_milliseconds, probes = sys.argv[1:]
    replicas = Replicas(int(count), float(step_milliseconds) / 1000, Path(probes))
    serve_forever(replicas, host="127.0.0.1", port=int(port), ready=print)


if __name__ == "__main__":
    main()
