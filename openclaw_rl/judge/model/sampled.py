"""Messages -> the answer of a model that an engine of ours runs: the served base, or a second one that only judges.

Asked behind everything that a person waits for. Knows tokens through the renderer only, and does not own the engine.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Sequence
from contextlib import aclosing

from openclaw_rl.errors import EngineError, RequestError
from openclaw_rl.judge.model.panel import AskFailed
from openclaw_rl.protocols import Engine, Renderer
from openclaw_rl.types import BACKGROUND, SYSTEM_SALT, GenerateRequest, Message, Sampling, TextDelta, VoteQuestion


class EngineAsker:
    """`panel.Asker` over an `Engine`. `version` None means whatever is live there."""

    def __init__(
        self,
        engine: Engine,
        renderer: Renderer,
        *,
        name: str,
        version: str | None = None,
        max_tokens: int = 1024,
        temperature: float = 0.6,
        timeout_s: float = 60.0,
        concurrency: int = 4,
    ) -> None:
        self.name = name
        self._engine = engine
        self._renderer = renderer
        self._version = version
        self._max_tokens = max_tokens
        self._temperature = temperature
        self._timeout_s = timeout_s
        self._slots = asyncio.Semaphore(concurrency)

    async def ask(self, messages: Sequence[Message], *, question: VoteQuestion, seed: int) -> str:
        """The model's answer without its thinking; raises `AskFailed`."""
        async with self._slots:
            try:
                async with asyncio.timeout(self._timeout_s):
                    return await self._sample(messages, seed)
            except TimeoutError:
                raise AskFailed(f"the engine gave no answer within {self._timeout_s:g} s") from None
            except (EngineError, RequestError) as error:  # a RequestError: the model's template refuses our messages
                raise AskFailed(f"the engine gave no answer: {error}") from error

    async def close(self) -> None:
        """Nothing: the engine belongs to who made it."""

    async def _sample(self, messages: Sequence[Message], seed: int) -> str:
        prompt_ids = await asyncio.to_thread(self._renderer.render, messages, (), {})
        request = GenerateRequest(
            request_id=f"judge-{uuid.uuid4().hex}",
            token_ids=prompt_ids,
            sampling=Sampling(max_tokens=self._max_tokens, temperature=self._temperature, seed=seed),
            stop_token_ids=self._renderer.stop_token_ids,
            version=self._version,
            priority=BACKGROUND,
            cache_salt=SYSTEM_SALT,
        )
        token_ids: list[int] = []
        finish_reason = None
        async with aclosing(self._engine.generate(request)) as deltas:
            async for delta in deltas:
                token_ids += delta.token_ids
                finish_reason = delta.finish_reason or finish_reason
        if finish_reason == "length":
            raise AskFailed(f"the answer was cut after {len(token_ids)} tokens; raise evaluation.judge_max_tokens")
        if finish_reason != "stop":
            raise AskFailed("the engine broke the answer off")
        return self._text(token_ids)

    def _text(self, token_ids: Sequence[int]) -> str:
        parser = self._renderer.parser(())
        events = (*parser.feed(self._renderer.decode(token_ids)), *parser.finish())
        return "".join(event.text for event in events if isinstance(event, TextDelta))
