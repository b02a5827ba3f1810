"""What the tests of engines share: a replica that answers from a folder of tests/fixtures/engines."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from monitor.engines.answer import Answer
from monitor.engines.failures import failure
from monitor.errors import TargetError

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from monitor.engines.counters import Counters
    from monitor.engines.openai import OpenAIEngine

FIXTURES = Path(__file__).parent / "fixtures" / "engines"
URL = "http://engine:8000"


def page(engine: str, path: str) -> str | None:
    """What the engine answers at the path; None where it has no such path."""
    name = path.strip("/").partition("?")[0].replace("/", "_")
    found = [file for suffix in ("json", "txt") if (file := FIXTURES / engine / f"{name}.{suffix}").exists()]
    return found[0].read_text() if found else None


def events(engine: str, name: str = "stream") -> list[bytes]:
    """The data of each event of a stream, without `[DONE]`."""
    lines = (FIXTURES / engine / f"{name}.txt").read_text().splitlines()
    data = [line.removeprefix("data:").strip().encode() for line in lines if line.startswith("data:")]
    return [event for event in data if event != b"[DONE]"]


def answer_of(engine: OpenAIEngine, stream: list[bytes]) -> Answer:
    """The answer that the engine makes of a stream with an event each second."""
    answer = Answer()
    for second, event in enumerate(stream):
        answer.add(float(second), engine.read(event, URL))
    return answer


def counters_at(engine: OpenAIEngine, text: str | None) -> Counters:
    """The counters that the engine reads from a metrics page. Raises TargetError where it shows none."""
    found = engine.glance_in(text or "", URL).counters
    if isinstance(found, TargetError):
        raise found
    return found


@dataclass
class FixtureReplica:
    """Answers from the engine's folder, or with what `changed` says (None: no such path)."""

    engine: str
    changed: dict[str, str | None] = field(default_factory=dict)
    url: str = URL
    data_parallel_rank: int | None = None

    async def get_text(self, path: str) -> str:
        text = self.changed[path] if path in self.changed else page(self.engine, path)
        if text is None:
            raise failure("not_found", URL + path, "answers 404")
        return text

    async def get_json(self, path: str) -> Any:
        return json.loads(await self.get_text(path))


def now(asked: Coroutine[Any, Any, Any]) -> Any:
    """The result of what needs no waiting here."""
    return asyncio.run(asked)
