"""One prompt replayed: turn after turn, with the model's own answers in between."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from monitor.engines.answer import Answer
from monitor.engines.failures import failure
from monitor.errors import TargetError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from monitor.core.records import Sampling
    from monitor.engines.base import Engine
    from monitor.engines.counts import Window
    from monitor.probing.client import Client
    from monitor.prompts.sets import Prompt


@dataclass
class Attempt:
    """What came of one prompt: the answers to its turns, the last perhaps not whole because of `error`.

    `window`: what the server's counters say of it, where they were read.
    """

    prompt: Prompt
    answers: list[Answer] = field(default_factory=list)
    error: TargetError | None = None
    total_seconds: float | None = None
    loop_lag_seconds: float = 0.0
    window: Window | None = None

    @property
    def has_request_counts(self) -> bool:
        return any(answer.request_counts is not None for answer in self.answers)


@dataclass(frozen=True)
class Asking:
    """How the prompts of one run are asked."""

    client: Client
    engine: Engine
    model: str
    sampling: Sampling
    salt: str | None

    async def replay(self, attempt: Attempt) -> None:
        """Replays the prompt of `attempt` into it; a failure of the replica ends up in `attempt.error`."""
        prompt_keys = attempt.prompt.request_keys
        turns = attempt.prompt.turns if self.sampling.endpoint == "chat" else attempt.prompt.turns[:1]
        conversation: list[tuple[str, str]] = []
        try:
            for turn in turns:
                conversation.append(("user", turn))
                answer = Answer()
                attempt.answers.append(answer)
                await self._listen(conversation, prompt_keys, answer)
                conversation.append(("assistant", answer.text))
        except TargetError as error:
            attempt.error = error

    async def _listen(
        self, conversation: list[tuple[str, str]], prompt_keys: Mapping[str, Any], answer: Answer
    ) -> None:
        path = self.engine.path(self.sampling)
        body = {**self.engine.body(self.model, conversation, self.sampling, self.salt), **prompt_keys}
        url = self.client.url + path

        def begins(event: bytes) -> bool:
            return self.engine.read(event, url).bears_tokens

        async with self.client.stream(path, body, begins) as events:
            async for seconds, data in events:
                answer.add(seconds, self.engine.read(data, url))
        if answer.finish_reason is None:
            raise failure("cut_off", url, "the stream ended before the answer was finished")
