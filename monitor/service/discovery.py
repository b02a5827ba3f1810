"""Which replicas each route has now: those listed, or those last found by name, file or HTTP."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import yaml

from monitor.config.replicas import Discovery, replica_url, targets_of
from monitor.core.address import at_rank
from monitor.core.format import count
from monitor.errors import ConfigError, SpecwatchError, TargetError
from monitor.probing.client import Client
from monitor.probing.target import Target
from monitor.service.complaint import Complaint

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence
    from pathlib import Path

    from monitor.config.routes import Route

    Resolve = Callable[[str], Awaitable[Sequence[str]]]

logger = logging.getLogger(__name__)

RESOLVE_SECONDS = 10.0


async def addresses(host: str) -> Sequence[str]:
    """Every address of the name: IPv4 where it has any, so that a server with both is one replica. Raises OSError."""
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(RESOLVE_SECONDS):
        found = await loop.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    by_family = {family: [str(at[0]) for kind, *_, at in found if kind == family] for family, *_ in found}
    return by_family.get(socket.AF_INET) or by_family.get(socket.AF_INET6) or []


class Replicas:
    """The replicas of every route. A look that fails, or finds none, leaves those found before, and says so once."""

    def __init__(self, routes: Iterable[Route], resolve: Resolve = addresses) -> None:
        self._routes = {route.name: route for route in routes}
        self._resolve = resolve
        self._found: dict[str, tuple[str, ...]] = {}
        self._files: dict[Path, tuple[tuple[int, int], tuple[str, ...]]] = {}
        self._troubles = {
            name: Complaint(logger, f"{name}: replicas stay those found before", f"{name}: replicas are found again")
            for name in self._routes
        }

    def number(self) -> int:
        """How many different servers are known, over all routes; the ranks of one are probed one at a time."""
        return len({url for route in self._routes.values() for url in self._urls(route)})

    def known(self, route: Route) -> tuple[str, ...]:
        """As listed, or as last found: sorted, so that every process goes through them in the same order.

        Each data-parallel rank is one, where the route says how many there are.
        """
        ranks = [None] if route.data_parallel_ranks is None else range(route.data_parallel_ranks)
        return tuple(at_rank(url, rank) for url in self._urls(route) for rank in ranks)

    def _urls(self, route: Route) -> tuple[str, ...]:
        return route.replicas if isinstance(route.replicas, tuple) else self._found.get(route.name, ())

    async def start(self) -> None:
        """Looks for the replicas of every route. Raises ConfigError with a line for each route that has none."""
        problems = []
        for route in self._routes.values():
            if isinstance(route.replicas, Discovery):
                try:
                    self._found[route.name] = await self._find(route, route.replicas)
                except SpecwatchError as error:
                    problems.append(f"routes.yaml: route {route.name}: replicas.{route.replicas.key}: {error}")
        if problems:
            raise ConfigError("\n".join(problems))

    async def look(self, route: Route) -> tuple[str, ...]:
        """The replicas as they are now, or as they were where that cannot be found out."""
        if isinstance(route.replicas, Discovery):
            try:
                found = await self._find(route, route.replicas)
            except SpecwatchError as error:
                self._troubles[route.name].raise_for(error)
            else:
                self._troubles[route.name].end()
                self._change(route, found)
        return self.known(route)

    def _change(self, route: Route, found: tuple[str, ...]) -> None:
        before = self._urls(route)
        self._found[route.name] = found
        signed = [f"+{url}" for url in found if url not in before] + [f"-{url}" for url in before if url not in found]
        if signed:
            logger.info("%s: %s now: %s", route.name, count(len(found), "replica"), " ".join(signed))

    async def _find(self, route: Route, where: Discovery) -> tuple[str, ...]:
        """At least one replica, sorted, each once. Raises SpecwatchError."""
        if where.dns is not None:
            found = await self._by_name(where.dns)
        elif where.file_sd is not None:
            found = await asyncio.to_thread(self._in_file, where.file_sd)
        else:
            found = await _over_http(where.http_sd or "", route.ca_file)
        if not found:
            raise TargetError("unreachable", f"{where.shown} names no replica")
        return found

    async def _by_name(self, url: str) -> tuple[str, ...]:
        parts = urlsplit(url)
        try:
            found = await self._resolve(parts.hostname or "")
        except (OSError, UnicodeError) as error:  # TimeoutError is an OSError; UnicodeError: a label that is too long
            told = getattr(error, "strerror", None) or "no answer in time"
            raise TargetError("unreachable", f"{url}: {parts.hostname} cannot be resolved ({told})") from None
        port = "" if parts.port is None else f":{parts.port}"
        hosts = [f"[{address}]" if ":" in address else address for address in found]
        return tuple(sorted({replica_url(f"{parts.scheme}://{host}{port}{parts.path}") for host in hosts}))

    def _in_file(self, path: Path) -> tuple[str, ...]:
        """Read again only when its time or size has changed."""
        try:
            stat = path.stat()
            version = (stat.st_mtime_ns, stat.st_size)
            if path not in self._files or self._files[path][0] != version:
                self._files[path] = (version, _parsed(path.read_text(encoding="utf-8"), is_json=path.suffix == ".json"))
        except OSError as error:
            raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
        except ValueError as error:  # not UTF-8, not JSON, or not the shape
            raise ConfigError(f"{path}: {' '.join(str(error).split())}") from None
        return self._files[path][1]


def replicas_now(route: Route) -> tuple[str, ...]:
    """The route's replicas, for a command that runs once. Raises ConfigError where none is found."""
    replicas = Replicas([route])
    asyncio.run(replicas.start())
    return replicas.known(route)


def _parsed(text: str, *, is_json: bool) -> tuple[str, ...]:
    try:
        return targets_of(json.loads(text) if is_json else yaml.safe_load(text))
    except yaml.YAMLError as error:
        raise ValueError(f"not valid YAML: {error}") from None


async def _over_http(url: str, ca_file: Path | None) -> tuple[str, ...]:
    parts = urlsplit(url)
    inventory = Target(f"{parts.scheme}://{parts.netloc}", ca_file=ca_file)
    async with Client(inventory, connections=1) as client:
        document = await client.get_json(parts._replace(scheme="", netloc="").geturl())
    try:
        return targets_of(document)
    except ValueError as error:
        raise TargetError("invalid_json", f"{inventory.base_url}{parts.path}: {error}") from None
