"""The engines there are, by name. A new engine is one module and one line here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from monitor.engines.llamacpp import LlamaCppEngine
from monitor.engines.models import get_models, owner_in
from monitor.engines.openai import OpenAIEngine
from monitor.engines.sglang import SglangEngine
from monitor.engines.tgi import TgiEngine
from monitor.engines.trtllm import TrtLlmEngine
from monitor.engines.vllm import VllmEngine

if TYPE_CHECKING:
    from monitor.engines.base import Engine, Replica

ENGINES: dict[str, Engine] = {
    "vllm": VllmEngine(),
    "sglang": SglangEngine(),
    "trtllm": TrtLlmEngine(),
    "llamacpp": LlamaCppEngine(),
    "tgi": TgiEngine(),
    "openai": OpenAIEngine(),
}
"""In the order in which a server is asked what it is; the last takes any."""


async def recognised(replica: Replica) -> str:
    """The name of the engine that the replica shows itself to be. Raises TargetError when it lists no models."""
    owner = owner_in(await get_models(replica))
    for name, engine in ENGINES.items():
        if await engine.is_here(replica, owner):
            return name
    return "openai"
