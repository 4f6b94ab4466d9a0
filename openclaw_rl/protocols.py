"""The seams of the system on one page. A stage receives its neighbours as these, wired in `pipeline.py`."""

from __future__ import annotations

from asyncio import Event, Future
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from typing import Protocol

from openclaw_rl.types import (
    AnswerEvent,
    ApiKey,
    Baseline,
    Credit,
    Delta,
    EngineState,
    Evidence,
    Feedback,
    GenerateRequest,
    JudgedTurn,
    Judgement,
    Lease,
    Message,
    NextState,
    Publication,
    Scored,
    ScoreRequest,
    Session,
    SessionOutline,
    Skip,
    Stage,
    Tool,
    Turn,
    TurnRecord,
    Verdict,
    Weights,
)


class Engine(Protocol):
    """The policy being served: tokens in, tokens out.

    `generate` streams until a delta with a finish reason. Closing the iterator cancels the request. `EngineLost`
    means that the process died: what was already yielded stays valid, and the caller may go on from there.
    `publish` returns when the version is loaded and checked, and live if that was wished; requests that run finish
    on the version they began with. `retire` takes no new requests for a version; its memory is freed with the last.
    """

    def generate(self, request: GenerateRequest) -> AsyncGenerator[Delta, None]: ...

    async def score(self, request: ScoreRequest) -> tuple[Scored, ...]: ...

    async def publish(self, publication: Publication) -> None: ...

    async def retire(self, version: str) -> None: ...

    async def state(self) -> EngineState: ...

    async def close(self) -> None: ...


class AnswerParser(Protocol):
    """Turns the text of one answer, as it grows, into the parts of an assistant message.

    `feed` gets newly decoded text and returns the events that are certain now; `finish` returns the rest.
    """

    num_closed_calls: int
    """Tool calls that were written to their end."""

    def feed(self, text: str) -> Iterable[AnswerEvent]: ...

    def finish(self) -> Iterable[AnswerEvent]: ...


class TextDecoder(Protocol):
    """Ids to text as they come; all texts together equal the decoding of all ids at once."""

    def push(self, token_ids: Sequence[int]) -> str: ...

    def finish(self) -> str: ...


class Renderer(Protocol):
    """Messages to ids and text to message parts, for one model family. Pure; safe to call from threads.

    `sampled[i]` holds the exact ids of the assistant message `messages[i]` where the engine sampled it: they are
    spliced in unchanged. `bridge` extends a finished turn by the messages that followed it, and returns None when
    this family cannot do so exactly.
    """

    stop_token_ids: tuple[int, ...]

    def render(
        self,
        messages: Sequence[Message],
        tools: Sequence[Tool],
        sampled: Mapping[int, Sequence[int]],
    ) -> list[int]: ...

    def bridge(
        self,
        prompt_ids: Sequence[int],
        completion_ids: Sequence[int],
        messages: Sequence[Message],
        tools: Sequence[Tool],
    ) -> list[int] | None: ...

    def prefill(self, tool: str | None) -> str:
        """The text that opens a tool call: of `tool`, or of any tool when None."""
        ...

    def prefill_ids(self, tool: str | None) -> list[int]:
        """The ids of `prefill`, its tags as control tokens where the model has such."""
        ...

    def encode(self, text: str) -> list[int]:
        """Plain text to ids; special tokens spelled out in it stay plain text."""
        ...

    def decode(self, token_ids: Sequence[int]) -> str: ...

    def decoder(self) -> TextDecoder: ...

    def token_bytes(self, token_id: int) -> bytes: ...

    def parser(self, tools: Sequence[Tool]) -> AnswerParser: ...


class Judge(Protocol):
    """Reads what followed a reply. Never raises for what a model or a function did: that is a failed verdict.

    `name` and `prompt_version` are stored with every judgement. `forget`: answers that were kept are not used again,
    since the judge is not believed. `close` ends what it needs.
    """

    name: str
    prompt_version: str

    async def judge(self, evidence: Evidence) -> Verdict: ...

    def forget(self) -> None: ...

    async def close(self) -> None: ...


class CreditRule(Protocol):
    """A judged turn -> what each of its signals weighs, or why it is not learned from. Pure."""

    name: str

    def weigh(self, verdict: Verdict) -> Weights | Skip: ...


class Lessons(Protocol):
    """The durable log of what is learned; every call is one transaction, on disk when it returns.

    Work on a turn is leased; what it made is stored together with the end of the lease, and only by who still holds
    it. So work is done at least once and counted once.
    """

    def woken(self, stage: Stage) -> Event: ...

    async def lease(
        self, stage: Stage, *, limit: int, ttl_s: float, only_closed_sessions: bool = False, min_turns: int = 1
    ) -> list[Lease]: ...

    async def renew(self, leases: Sequence[Lease], *, ttl_s: float) -> list[Lease]: ...

    async def give_back(self, held: Lease, *, due_at: float, count_attempt: bool = True) -> bool: ...

    async def close_task(self, held: Lease) -> bool: ...

    async def next_due(self, stage: Stage, *, after: float = 0.0) -> float | None: ...

    async def put_judgement(self, held: Lease, judgement: Judgement) -> bool: ...

    async def put_judgements(self, judged: Sequence[tuple[Lease, Judgement]]) -> list[bool]: ...

    async def put_credit(self, held: Lease, credit: Credit) -> bool: ...

    async def get_session(self, session: str) -> Session | None: ...

    async def outline(self, session: str) -> SessionOutline | None: ...

    async def get_turn(self, session: str, index: int) -> Turn | None: ...

    async def turns(self, session: str) -> list[Turn]: ...

    async def next_state(self, session: str, index: int) -> NextState | None: ...

    async def feedback(self, session: str) -> list[Feedback]: ...

    async def followed_turn(self, session: str, index: int) -> tuple[Session, TurnRecord] | None: ...

    async def judged_turn(self, session: str, index: int) -> JudgedTurn | None: ...

    async def judgements(self, session: str) -> list[Judgement]: ...

    async def credits(self, session: str) -> list[Credit]: ...

    async def baseline(self, line: str, turn_kind: str) -> Baseline: ...

    async def flag(self, name: str) -> str | None: ...

    async def set_flag(self, name: str, value: str | None) -> None: ...


class Store(Protocol):
    """The durable log. Every write takes its place in line at once; its future is done when it is on disk.

    A write that failed raises `StoreUnavailable`. Nobody waits for a `mark_…`: losing one repeats work, no more.
    """

    def put_session(self, session: Session) -> Future[None]: ...

    def put_turn(self, turn: Turn) -> Future[None]: ...

    def put_next_state(self, state: NextState) -> Future[None]: ...

    def put_feedback(self, feedback: Feedback) -> Future[None]: ...

    def put_key(self, key: ApiKey) -> Future[None]: ...

    def mark_delivered(self, session: str, index: int) -> Future[None]: ...

    def mark_skip(self, session: str, index: int, reason: Skip) -> Future[None]: ...

    def close_session(self, session: str, closed_at: float) -> Future[None]: ...

    def revoke_key(self, key: str, revoked_at: float) -> Future[None]: ...

    async def find_session(self, user: str, name: str) -> SessionOutline | None: ...

    async def get_turn(self, session: str, index: int) -> Turn | None: ...

    async def turn_owner(self, session: str, index: int) -> str | None: ...

    async def record(self, session: str, index: int) -> TurnRecord | None: ...

    def settled(self) -> Event: ...

    async def settled_turns(self, user: str, after: str, *, limit: int) -> tuple[list[str], str]: ...

    async def open_turns(self, user: str, after: str, *, limit: int) -> tuple[list[str], str]: ...
