"""An engine that speaks in words, versions in memory, and a gate and a proof that let everything pass."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from math import log
from pathlib import Path
from typing import Any

from openclaw_rl.errors import EngineLost, EngineRefused
from openclaw_rl.release.gate.prove import Proof
from openclaw_rl.release.gate.report import GateReport
from openclaw_rl.release.live import LiveVersions
from openclaw_rl.release.releaser import Releaser
from openclaw_rl.render.parsing import AnswerForm, StreamParser
from openclaw_rl.store import SqliteStore
from openclaw_rl.train.local import LocalWeights
from openclaw_rl.types import (
    Delta,
    EngineState,
    GenerateRequest,
    Json,
    Lesson,
    Message,
    Publication,
    Scored,
    ScoreRequest,
    TokenLogprob,
    Tool,
    Undone,
    Version,
    VersionState,
)
from tests.factories.weights import folder_ref

VERSION = Version(line="local", number=1, parent=0, state="candidate", created_at=0.0, weights=folder_ref("/v1", "ab"))
NOWHERE = LocalWeights(Path("/nowhere"))
"""Keeps nobody's weights."""


class WordRenderer:
    """A token is a word with what stands before it; a prompt is what was asked, behind a mark. 2 ends an answer."""

    stop_token_ids = (2,)

    def __init__(self) -> None:
        self._words = {"<s>": 1, "<|im_end|>": 2}

    def encode(self, text: str) -> list[int]:
        return [self._words.setdefault(word, len(self._words) + 1) for word in re.findall(r"\s*\S+", text)]

    def decode(self, token_ids: Sequence[int]) -> str:
        words = {number: word for word, number in self._words.items()}
        return "".join(words[token] for token in token_ids if token > 2)

    def render(self, messages: Sequence[Message], tools: Sequence[Tool], sampled: Mapping[int, Any]) -> list[int]:
        return [1, *self.encode(messages[-1].content)]

    def parser(self, tools: Sequence[Tool]) -> StreamParser:
        return StreamParser(AnswerForm(), tools)


Policy = Callable[[str], str]
"""A question -> the answer of a version."""


@dataclass(slots=True)
class WordEngine:
    """Answers by policies. `logprobs` gives what a version thinks of a token, by the text it stands in."""

    renderer: Any
    policies: dict[str, Policy]
    logprob: Callable[[str, str], float] = lambda version, text: -0.5
    spread: dict[str, float] = field(default_factory=dict)
    """How much of the probability goes to the second best token, by version; 0.3 where nothing is said."""
    generated: list[str] = field(default_factory=list)
    scored: list[str] = field(default_factory=list)
    dtype: str = "float32"
    checksums: dict[str, str] = field(default_factory=lambda: {"v1": "ab", "v2": "ab"})

    async def generate(self, request: GenerateRequest) -> AsyncGenerator[Delta, None]:
        assert (request.priority, request.exact) == (1, True), "a version is measured, not a mixture of versions"
        version = str(request.version)
        self.generated.append(version)
        ids = self.renderer.encode(self.policies[version](self.renderer.decode(request.token_ids)))
        is_cut = len(ids) >= request.sampling.max_tokens
        ids = ids[: request.sampling.max_tokens] if is_cut else [*ids, 2]
        other = self.spread.get(version, 0.3)
        top = (TokenLogprob(1, log(1 - other)), TokenLogprob(2, log(max(other, 1e-9))))
        yield Delta(
            token_ids=tuple(ids),
            logprobs=(-0.5,) * len(ids),
            version=version,
            top_logprobs=(top,) * len(ids),
            finish_reason="length" if is_cut else "stop",
        )

    async def score(self, request: ScoreRequest) -> tuple[Scored, ...]:
        self.scored.append(str(request.version))
        return tuple(
            Scored(logprobs=(self.logprob(str(request.version), self.renderer.decode(ids)),) * (len(ids) - start))
            for ids, start in zip(request.sequences, request.starts, strict=True)
        )

    async def publish(self, publication: Publication) -> None: ...

    async def retire(self, version: str) -> None: ...

    async def forget_cache(self, salts: Collection[str]) -> None: ...

    async def state(self) -> EngineState:
        return EngineState(
            model="words",
            versions=tuple(self.policies),
            live_version="v0",
            context_window=4096,
            vocab_size=9999,
            device="none",
            dtype=self.dtype,
            checksums=self.checksums,
        )

    async def close(self) -> None: ...


class FakeEngine:
    """Notes what it is told; can refuse, or be away."""

    def __init__(self) -> None:
        self.published: list[Publication] = []
        self.retired: list[str] = []
        self.is_lost = False
        self.refuses = False
        self.missing: set[str] = set()

    async def generate(self, request: GenerateRequest) -> AsyncGenerator[Delta, None]:
        yield Delta(token_ids=(), logprobs=(), version=str(request.version), finish_reason="stop")

    async def score(self, request: ScoreRequest) -> tuple[Scored, ...]:
        raise NotImplementedError

    async def publish(self, publication: Publication) -> None:
        if self.is_lost:
            raise EngineLost("gone")
        if self.refuses:
            raise EngineRefused("the checksum is another one")
        if publication.version in self.missing:
            raise EngineRefused("the folder is gone")
        self.published.append(publication)

    async def retire(self, version: str) -> None:
        self.retired.append(version)

    async def forget_cache(self, salts: Collection[str]) -> None: ...

    async def state(self) -> EngineState:
        raise NotImplementedError

    async def close(self) -> None: ...


class OpenDoor:
    """A gate and a proof that find something against the versions they are told of, and against no other."""

    def __init__(
        self,
        *,
        mad: Collection[int] = (),
        unproved: Collection[int] = (),
        faint: Collection[int] = (),
        sly: Collection[int] = (),
    ) -> None:
        """What is `sly` passes the quick check, and not the full one."""
        self.mad, self.unproved, self.faint, self.sly = mad, unproved, faint, sly
        self.compared: list[tuple[str, str]] = []
        self.checked_fully: list[tuple[str, str]] = []
        self.prepared: list[str] = []

    async def prepare(self, parent: Version | None) -> None:
        self.prepared.append("v0" if parent is None else parent.label)

    async def quick(self, candidate: Version, parent: Version | None, confirmed: Version | None) -> GateReport:
        label = "v0" if parent is None else parent.label
        self.compared.append((candidate.label, label))
        return Found(check="quick", parent=label, found="it is mad" if candidate.number in self.mad else "")

    async def full(self, candidate: Version, confirmed: Version | None) -> GateReport:
        label = "v0" if confirmed is None else confirmed.label
        self.checked_fully.append((candidate.label, label))
        return Found(parent=label, found="it is sly" if candidate.number in self.sly else "")

    async def prove(self, candidate: Version, parent: Version | None) -> Proof:
        proof = Proof(num_tokens=256, correlation=1.0, change=0.1, noise=0.0)
        if candidate.number in self.faint:
            return replace(proof, verdict="no effect", reason="no effect")
        if candidate.number in self.unproved:
            return replace(proof, verdict="other weights", reason="it is served otherwise")
        return proof


@dataclass(slots=True, kw_only=True)
class Found(GateReport):
    """A report that says what it is told to."""

    found: str = ""

    @property
    def reason(self) -> str:
        return self.found


class Rows:
    """Versions in memory."""

    is_shared = False

    @asynccontextmanager
    async def claimed(self, name: str) -> AsyncIterator[bool]:
        yield True

    def __init__(self, *versions: Version) -> None:
        self.rows = {version.number: version for version in versions}

    async def versions(self, line: str | None = None) -> Sequence[Version]:
        return list(self.rows.values())

    async def set_version_state(
        self,
        line: str,
        number: int,
        state: VersionState,
        *,
        reason: str = "",
        gate: Json = None,
        blameless: bool = False,
        only_if: Callable[[Sequence[Version]], bool] | None = None,
    ) -> bool:
        if only_if is not None and not only_if(list(self.rows.values())):
            return False
        if state == "live":
            for other, row in self.rows.items():
                if row.state == "live" and other != number:
                    self.rows[other] = replace(row, state="retired")
        before = self.rows[number]
        self.rows[number] = replace(before, state=state, reason=reason, gate=before.gate if gate is None else gate)
        return True

    async def retire_stranded(self, line: str, *, reason: str) -> Sequence[Version]:
        return []

    async def was_taken_back(self, line: str, numbers: Collection[int]) -> bool:
        return False

    async def forget_files(self, line: str, numbers: Sequence[int]) -> None:
        raise AssertionError("all of these are new")

    async def undo(
        self, lesson: Lesson, *, reason: str, loaded: Collection[int] | None, unusable: Collection[int]
    ) -> Undone:
        raise AssertionError("nothing is undone here")


class Rig:
    def __init__(self, store: SqliteStore, *, mad: tuple[int, ...] = ()) -> None:
        self.engine = FakeEngine()
        self.live = LiveVersions()
        self.door = HeldDoor(mad=mad)
        self.releaser = Releaser(
            store.lessons, self.engine, self.door, self.live, proving=self.door, keeper=NOWHERE, save_every=100
        )

    @property
    def published(self) -> list[str]:
        return [publication.version for publication in self.engine.published]


class HeldDoor(OpenDoor):
    """Can be held while it measures."""

    def __init__(self, *, mad: tuple[int, ...]) -> None:
        super().__init__(mad=mad)
        self.go_on, self.is_asked = asyncio.Event(), asyncio.Event()
        self.go_on.set()
        self.is_deaf = False
        """It goes on although nobody asks any more, as one does whose answer is on its way."""
        self.error: Exception | None = None

    async def quick(self, candidate: Version, parent: Version | None, confirmed: Version | None) -> GateReport:
        report = await super().quick(candidate, parent, confirmed)
        self.is_asked.set()
        try:
            await self.go_on.wait()
        except asyncio.CancelledError:
            if not self.is_deaf:
                raise
            await self.go_on.wait()
        if self.error is not None:
            raise self.error
        return report
