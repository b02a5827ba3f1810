"""Which engine answers at an address, where nobody says."""

from __future__ import annotations

from typing import TYPE_CHECKING

from monitor.engines.registry import ENGINES, recognised
from monitor.engines.vllm import VllmEngine
from monitor.errors import TargetError
from monitor.probing.client import Client

if TYPE_CHECKING:
    from monitor.core.records import Identity
    from monitor.engines.base import Engine, Observation, Replica
    from monitor.probing.target import Target

AUTO = "auto"


async def engine_name_at(target: Target) -> str:
    """The name of the engine that the target shows itself to be. Raises TargetError when it cannot be looked at."""
    async with Client(target, connections=1) as client:
        return await recognised(client)


async def engine_at(target: Target, name: str) -> Engine:
    """The engine of that name, or with `auto` the one that the target shows itself to be.

    A target that cannot be looked at is taken for vLLM, whose next look says what this one found: who waited in vain
    does not wait again. Raises UsageError.
    """
    if name != AUTO:
        return ENGINES[name]
    try:
        return ENGINES[await engine_name_at(target)]
    except TargetError as error:
        return _NotSeen(error)


class _NotSeen(VllmEngine):
    """vLLM at a target that was just looked at in vain."""

    def __init__(self, error: TargetError) -> None:
        self._error: TargetError | None = error

    async def observe(self, replica: Replica, model: str | None, declared: Identity) -> Observation:
        """See `Engine.observe`. The first time it raises what the look before did; later ones look for themselves."""
        error, self._error = self._error, None
        if error is not None:
            raise error
        return await super().observe(replica, model, declared)
