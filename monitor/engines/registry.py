"""The engines there are, by name. A new engine is one module and one line here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from monitor.engines.llamacpp import LlamaCppEngine
from monitor.engines.openai import OpenAIEngine
from monitor.engines.sglang import SglangEngine
from monitor.engines.vllm import VllmEngine

if TYPE_CHECKING:
    from monitor.engines.base import Engine

ENGINES: dict[str, Engine] = {
    "vllm": VllmEngine(),
    "sglang": SglangEngine(),
    "llamacpp": LlamaCppEngine(),
    "openai": OpenAIEngine(),
}
