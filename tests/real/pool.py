"""At most two servers at a time: the rest of what a test session uses is stopped and started again when asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from tests.real.servers import Kind, RealServer

if TYPE_CHECKING:
    from tests.real.tables import Tables

LIMIT = 2  # two cores, and 2.5 GB of memory for each


class ServerPool:
    """Servers by what they were asked for with; the one not asked for longest makes room for another."""

    def __init__(self, tables: Tables, limit: int = LIMIT) -> None:
        self._tables = tables
        self._limit = limit
        self._live: dict[str, RealServer] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop_all()

    def get(self, kind: Kind, **options: object) -> RealServer:
        """A healthy server of this kind and these options of RealServer, an earlier one if it still lives."""
        key = f"{kind} {sorted(options.items())}"
        server = self._live.pop(key, None)
        if server is not None and not server.is_running:
            server.stop()
            server = None
        if server is None:
            self._make_room()
            server = RealServer(kind, **options).start()
            self._note(server)
        self._live[key] = server
        return server

    def stop_all(self) -> None:
        """Stop them all, as a test does that starts its own."""
        for server in self._live.values():
            server.stop()
        self._live.clear()

    def _make_room(self) -> None:
        while len(self._live) >= self._limit:
            self._live.pop(next(iter(self._live))).stop()

    def _note(self, server: RealServer) -> None:
        memory_gib = server.memory_bytes() / 2**30
        drafter = server.drafter.name if server.drafter else ""
        row = {"kind": server.kind, "drafter": drafter, "start_seconds": server.start_seconds, "memory_gib": memory_gib}
        self._tables.add("real vLLM: servers started", **row)
