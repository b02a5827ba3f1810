"""Which engine answers at an address, where nobody says."""

from __future__ import annotations

from typing import TYPE_CHECKING

from monitor.engines.registry import ENGINES, recognised
from monitor.errors import TargetError
from monitor.probing.client import Client

if TYPE_CHECKING:
    from monitor.engines.base import Engine
    from monitor.probing.client import Target

AUTO = "auto"


async def engine_name_at(target: Target) -> str:
    """The name of the engine that the target shows itself to be. Raises TargetError when it cannot be looked at."""
    async with Client(target, connections=1) as client:
        return await recognised(client)


async def engine_at(target: Target, name: str) -> Engine:
    """The engine of that name, or with `auto` the one that the target shows itself to be.

    A target that cannot be looked at is taken for vLLM, whose own look will say what is wrong. Raises UsageError.
    """
    if name != AUTO:
        return ENGINES[name]
    try:
        return ENGINES[await engine_name_at(target)]
    except TargetError:
        return ENGINES["vllm"]
