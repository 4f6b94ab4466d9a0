"""A version -> its answers to held-out questions and what it still knows, asked of an engine directly.

Every version gets the same questions, seeds and items, so that two of them are compared pair by pair. An exam goes
behind everything that a person waits for, and leaves nothing in the store. The detectors describe an answer; what it is
worth to somebody is a simulated user's matter.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import zlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from openclaw_rl.errors import OpenClawError
from openclaw_rl.evaluation import detectors
from openclaw_rl.evaluation.capability import CapabilityItem, CapabilityResult, load_items, measure
from openclaw_rl.evaluation.questions import KINDS, Kind, Question, load_questions
from openclaw_rl.protocols import Engine, Renderer
from openclaw_rl.types import (
    BACKGROUND,
    SYSTEM_SALT,
    GenerateRequest,
    Json,
    Message,
    Sampling,
    TextDelta,
    Version,
)
from openclaw_rl.types.checks import require

SMALL_NUM_ITEMS = 64
"""Of the capability set, where a version is looked at in passing: seconds, and good to some 12 points."""

_log = logging.getLogger(__name__)

Progress = Callable[[int, int], None]
"""How many parts are done, of how many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exam:
    """What is asked. Questions are the first of the held-out ones; items are spread over the whole set, None is all."""

    num_questions: int = 12
    num_items: int | None = None
    kinds: tuple[Kind, ...] = KINDS
    max_tokens: int = 160
    temperature: float = 0.7
    seed: int = 0

    def __post_init__(self) -> None:
        require(self.num_questions >= 1, f"an exam has at least one question, got {self.num_questions}")
        require(self.num_items is None or self.num_items >= 0, f"num_items must not be negative, got {self.num_items}")
        require(bool(self.kinds) and set(self.kinds) <= set(KINDS), f"kinds are some of {', '.join(KINDS)}")

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Exam:
        """ValueError or TypeError says what is wrong with it."""
        return cls(**{**raw, "kinds": tuple(raw.get("kinds", KINDS))})

    def to_json(self) -> dict[str, Json]:
        names = ("num_questions", "num_items", "max_tokens", "temperature", "seed")
        return {**{name: getattr(self, name) for name in names}, "kinds": list(self.kinds)}

    @property
    def questions(self) -> tuple[Question, ...]:
        asked = [question for question in load_questions("held_out") if question.kind in self.kinds]
        return tuple(asked[: self.num_questions])

    @property
    def items(self) -> tuple[CapabilityItem, ...]:
        items = load_items()
        num = len(items) if self.num_items is None else min(self.num_items, len(items))
        return tuple(items[index * len(items) // num] for index in range(num))


_SMALL = Exam(num_items=SMALL_NUM_ITEMS)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExamAnswer:
    """A held-out question and what a version said. One that was cut counts the tokens up to there."""

    question: Question
    text: str
    num_tokens: int
    is_cut: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Examination:
    """What an exam of one version came to; without items there is no capability."""

    version: str
    answers: tuple[ExamAnswer, ...]
    capability: CapabilityResult | None

    def to_json(self) -> dict[str, Json]:
        """What `from_json` reads on the other side, given the same exam."""
        return {
            "version": self.version,
            "answers": [{"text": a.text, "num_tokens": a.num_tokens, "is_cut": a.is_cut} for a in self.answers],
            "right": None if self.capability is None else [int(right) for right in self.capability.right],
        }

    @classmethod
    def from_json(cls, raw: Mapping[str, Any], exam: Exam) -> Examination:
        version, right = raw["version"], raw["right"]
        answers = tuple(ExamAnswer(question=q, **a) for q, a in zip(exam.questions, raw["answers"], strict=True))
        known = None
        if right is not None:
            known = CapabilityResult(version=version, items=exam.items, right=tuple(map(bool, right)))
        return cls(version=version, answers=answers, capability=known)


TRAITS: Mapping[str, Callable[[ExamAnswer], float]] = {
    "tokens": lambda a: float(a.num_tokens),
    "on_topic": lambda a: detectors.on_topic(a.question.text, a.text),
    "repetition": lambda a: detectors.repetition(a.text),
    "refusals": lambda a: float(detectors.refuses(a.text)),
    "questions_back": lambda a: float(detectors.asks_back(a.text)),
}
"""What can be seen of an answer without knowing who asked."""


def traits(answers: Sequence[ExamAnswer]) -> dict[str, list[float]]:
    """Each trait of every answer, in their order."""
    return {name: [trait(answer) for answer in answers] for name, trait in TRAITS.items()}


def summary(examination: Examination) -> dict[str, float]:
    """One number for each measure, under the names that steps and `/metrics` have them by."""
    means = {f"eval/{name}": fmean(values) for name, values in traits(examination.answers).items()}
    known = examination.capability
    return means if known is None else {"eval/capability": known.share, **means}


async def examine(
    engine: Engine, renderer: Renderer, version: str, exam: Exam, *, on_progress: Progress = lambda *_: None
) -> Examination:
    """The version must be loaded, and stay so. `EngineError` if the engine cannot answer."""
    questions, items = exam.questions, exam.items
    done, total = 0, len(questions) + len(items)

    def advance() -> None:
        nonlocal done
        done += 1
        on_progress(done, total)

    on_progress(0, total)
    asker = _Asker(engine, renderer, version, exam, advance)
    try:
        async with asyncio.TaskGroup() as group:
            # All at once: the engine batches them, and a version that is retired meanwhile keeps those that run.
            tasks = [group.create_task(asker.ask(question)) for question in questions]
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from None
    known = await measure(engine, renderer, version, items=items, on_item=advance) if items else None
    return Examination(version=version, answers=tuple(task.result() for task in tasks), capability=known)


@dataclass(frozen=True, slots=True)
class _Asker:
    engine: Engine
    renderer: Renderer
    version: str
    exam: Exam
    on_answer: Callable[[], None]

    async def ask(self, question: Question) -> ExamAnswer:
        messages = [Message(role="user", content=question.text)]
        prompt_ids = await asyncio.to_thread(self.renderer.render, messages, (), {})
        seed = zlib.crc32(f"{self.exam.seed}/{question.text}".encode()) >> 1
        request = GenerateRequest(
            request_id=f"exam-{secrets.token_hex(6)}",
            token_ids=prompt_ids,
            sampling=Sampling(max_tokens=self.exam.max_tokens, temperature=self.exam.temperature, seed=seed),
            stop_token_ids=self.renderer.stop_token_ids,
            version=self.version,
            priority=BACKGROUND,
            exact=True,
            cache_salt=SYSTEM_SALT,
        )
        token_ids: list[int] = []
        finish_reason = None
        async with aclosing(self.engine.generate(request)) as deltas:
            async for delta in deltas:
                token_ids += delta.token_ids
                finish_reason = delta.finish_reason or finish_reason
        self.on_answer()
        text, is_cut = self._text(token_ids), finish_reason != "stop"
        return ExamAnswer(question=question, text=text, num_tokens=len(token_ids), is_cut=is_cut)

    def _text(self, token_ids: Sequence[int]) -> str:
        parser = self.renderer.parser(())
        events = (*parser.feed(self.renderer.decode(token_ids)), *parser.finish())
        return "".join(event.text for event in events if isinstance(event, TextDelta)).strip()


class Examiner:
    """Examines versions that went live, of a line the first of every `every` steps (None: none), one at a time.

    Looks on: nothing waits for an examination, and one that fails is a line in the log. If versions come faster than
    they can be examined, only the newest of each line is. `loaded` keeps a version on the engine meanwhile;
    `on_measured` hears the measures, for the row of the step that made the version.
    """

    def __init__(
        self,
        engine: Engine,
        renderer: Renderer,
        loaded: Callable[[str, int], AbstractAsyncContextManager[str]],
        *,
        every: int | None = None,
        on_measured: Callable[[str, int, Mapping[str, float]], Awaitable[None]] | None = None,
    ) -> None:
        self._engine = engine
        self._renderer = renderer
        self._loaded = loaded
        self._every = every
        self._on_measured = on_measured
        self._wanted: dict[str, int] = {}
        self._newest: dict[str, int] = {}
        """By line: the newest version that went live."""
        self._woken = asyncio.Event()

    def changed(self, version: Version) -> None:
        """A version has another state. One that somebody went back to is not examined again."""
        if self._every is None or version.state != "live":
            return
        before = self._newest.get(version.line, version.parent)
        self._newest[version.line] = max(before, version.number)
        if version.number // self._every > before // self._every:
            self._wanted[version.line] = version.number
            self._woken.set()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            while self._wanted:
                await self._look_at(*self._wanted.popitem())
            self._woken.clear()
            await self._woken.wait()

    async def examine(
        self, line: str, number: int, exam: Exam, *, on_progress: Progress = lambda *_: None
    ) -> Examination:
        """One version, now."""
        async with self._loaded(line, number) as label:
            return await examine(self._engine, self._renderer, label, exam, on_progress=on_progress)

    async def _look_at(self, line: str, number: int) -> None:
        try:
            found = await self.examine(line, number, _SMALL)
            if self._on_measured is not None:
                await self._on_measured(line, number, summary(found))
        except OpenClawError as error:
            _log.warning("version %d of %s was not examined: %s", number, line, error)
