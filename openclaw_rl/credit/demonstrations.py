"""A turn and the hint of its reaction -> a demonstration: how the base model answers when it is told the wish.

A student that never begins a list cannot be pulled towards one along its own answers. The base model, which has read
the hint, shows it one: its answer becomes a sample behind the prompt without the hint. It is asked behind everything
that people wait for, while the lesson waits for its batch. An answer that is none, or that is cut, teaches nothing:
docs/algorithms.md has the conditions. Knows no verdict and no batch.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from contextlib import aclosing
from statistics import median

from openclaw_rl.errors import EngineError
from openclaw_rl.evaluation.users import answered
from openclaw_rl.protocols import Engine, LearningStore, Renderer
from openclaw_rl.types import (
    BACKGROUND,
    BASE_VERSION,
    SYSTEM_SALT,
    Candidate,
    GenerateRequest,
    Sample,
    Sampling,
    TextDelta,
    Turn,
    VersionSpan,
    sample_id,
)

_log = logging.getLogger(__name__)

NUM_TRIES = 2
"""Answers that are drawn until one is worth learning."""

LONGEST = 2
"""How many times as long as the person's usual answers a demonstration may be."""

NUM_USUAL, USUAL_TOKENS = 8, 4096
"""Turns that say how long a person's answers usually are, and how long their prompts and answers may be."""

ENOUGH = 0.5
"""How far a demonstration has to be an answer to what was asked (`evaluation.users.answered`)."""


class Demonstrator:
    """Asks the base model. An engine that fails, or has no time, gives no demonstration: the lesson goes on alone."""

    def __init__(
        self, engine: Engine, renderer: Renderer, lessons: LearningStore, model_id: str, *, timeout_s: float = 30.0
    ) -> None:
        self.timeout_s = timeout_s
        self._engine = engine
        self._renderer = renderer
        self._lessons = lessons
        self._model_id = model_id

    async def demonstrate(self, turn: Turn, lesson: Sample) -> Sample | None:
        """None where the lesson has no hint, or no answer was worth learning."""
        hinted = next((one for one in lesson.candidates if one.hint), None)
        if hinted is None or not lesson.w_opd or turn.message.tool_calls or turn.num_prefill:
            return None
        try:
            async with asyncio.timeout(self.timeout_s):
                max_tokens = await self._longest(lesson)
                for attempt in range(NUM_TRIES):
                    ids = await self._answer(lesson, hinted, max_tokens, attempt)
                    if await asyncio.to_thread(self._is_answer, turn, ids):
                        return _sample(lesson, hinted, ids)
        except TimeoutError:
            _log.info("no demonstration of %s within %g s", lesson.id, self.timeout_s)
        except EngineError as error:
            _log.info("no demonstration of %s: %s", lesson.id, error)
        return None

    async def _longest(self, lesson: Sample) -> int:
        """By what this person is used to; the turn itself is among it."""
        usual = await self._lessons.replayed_turns(
            lesson.line, model=self._model_id, limit=NUM_USUAL, max_tokens=USUAL_TOKENS
        )
        lengths = [len(one.response_ids) for one in usual] or [len(lesson.response_ids)]
        return max(1, round(LONGEST * median(lengths)))

    async def _answer(self, lesson: Sample, hinted: Candidate, max_tokens: int, attempt: int) -> tuple[int, ...]:
        """The ids, with those that end them; empty where the answer did not come to its end."""
        name = f"{lesson.id} {attempt}"
        request = GenerateRequest(
            request_id=f"demonstration {name}",
            token_ids=lesson.teacher_prompt(hinted),
            sampling=Sampling(max_tokens=max_tokens, temperature=lesson.temperature, seed=_seed(name)),
            stop_token_ids=self._renderer.stop_token_ids,
            version=BASE_VERSION,
            priority=BACKGROUND,
            exact=True,
            cache_salt=SYSTEM_SALT,
        )
        ids: list[int] = []
        finish = None
        async with aclosing(self._engine.generate(request)) as deltas:
            async for delta in deltas:
                ids += delta.token_ids
                finish = delta.finish_reason or finish
        return tuple(ids) if finish == "stop" else ()

    def _is_answer(self, turn: Turn, ids: tuple[int, ...]) -> bool:
        """Words alone, and an answer to what the person said in this conversation."""
        if not ids:
            return False
        parser = self._renderer.parser(turn.tools)
        events = [*parser.feed(self._renderer.decode(ids)), *parser.finish()]
        if not all(isinstance(event, TextDelta) for event in events):
            return False
        said = "".join(event.text for event in events if isinstance(event, TextDelta))
        asked = "\n".join(message.content for message in turn.messages if message.role == "user")
        return answered(asked, said) >= ENOUGH


def _sample(lesson: Sample, hinted: Candidate, ids: tuple[int, ...]) -> Sample:
    """Behind the prompt of the lesson, as loud as its hint. Nobody judged it: w_rl is 0."""
    return Sample(
        id=sample_id(lesson.session, lesson.index, "demonstration"),
        line=lesson.line,
        kind="demonstration",
        session=lesson.session,
        index=lesson.index,
        prompt_index=lesson.prompt_index,
        created_at=lesson.created_at,
        prompt_ids=lesson.prompt_ids,
        response_ids=ids,
        loss_mask=(True,) * len(ids),
        advantages=(0.0,) * len(ids),
        logprobs=None,
        temperature=lesson.temperature,
        on_policy=False,
        reward=0.0,
        w_rl=0.0,
        w_opd=lesson.w_opd,
        candidates=(hinted,),
        version_spans=(VersionSpan(BASE_VERSION, 0, len(ids)),),
    )


def _seed(name: str) -> int:
    """The same for the same lesson and attempt."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "little")
