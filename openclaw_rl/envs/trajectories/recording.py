"""A session with all that was said of it, and what the formats of others have no place for.

    Recording(session, records, judgements, outcome)    what is written and what is read
    TurnNotes, SessionNotes                             what goes under `extra` or `metadata`, as `openclaw_rl`

Ids and log-probs are written and read as they are, or not at all. Whose a session was is not told: what is read belongs
to whoever reads it. `Turn.chain` and `Turn.request_digest` name a conversation among those of its user, so they are
left out as well; who stores a turn makes them anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from pydantic import ConfigDict

from openclaw_rl.types import (
    LOCAL_USER,
    Completion,
    Feedback,
    FinishReason,
    Judgement,
    Message,
    NextState,
    Outcome,
    Sampling,
    Session,
    Skip,
    TokenLogprob,
    Tool,
    Turn,
    TurnKind,
    TurnRecord,
    VersionSpan,
)
from openclaw_rl.types.checks import require

OURS = "openclaw_rl"
"""The key of our notes in files of others' formats."""

UNKNOWN = "unknown"
"""The version, and the model, of a file that names none; nobody learns from what it sampled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """A session: its turns in order, the newest judgement of each that has one, and how its attempt ended."""

    session: Session
    records: tuple[TurnRecord, ...]
    judgements: Mapping[int, Judgement] = field(default_factory=dict)
    outcome: Outcome | None = None

    def __post_init__(self) -> None:
        indices = [record.turn.index for record in self.records]
        require(indices == sorted(set(indices)), f"the turns of {self.session.id} are not in order: {indices}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionNotes:
    """What is known of the session itself."""

    session: Session
    outcome: Outcome | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnNotes:
    """What is known of a turn beside its messages, its ids and their log-probs.

    `followed_by`: what arrived after it; None where that stands in the file itself, behind the turn. `arrived_at` is
    None where nothing had followed.
    """

    __pydantic_config__ = ConfigDict(extra="forbid")

    index: int
    parent: int | None
    kind: TurnKind
    created_at: float
    finished_at: float
    dialect: str
    sampling: Sampling
    stop: tuple[str, ...]
    num_prefill: int
    finish_reason: FinishReason
    version_spans: tuple[VersionSpan, ...]
    top_logprobs: tuple[tuple[TokenLogprob, ...], ...] | None
    skip: Skip | None
    delivered: bool
    label: str
    retrievable: bool
    arrived_at: float | None
    followed_by: tuple[Message, ...] | None
    feedback: tuple[Feedback, ...]
    judgement: Judgement | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToldTurn:
    """The parts of a turn that every format has a place for."""

    model: str
    messages: tuple[Message, ...]
    tools: tuple[Tool, ...]
    message: Message
    prompt_ids: tuple[int, ...]
    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]


def session_notes(recording: Recording) -> SessionNotes:
    return SessionNotes(session=replace(recording.session, user=LOCAL_USER), outcome=recording.outcome)


def turn_notes(recording: Recording, record: TurnRecord, *, following: tuple[Message, ...] | None) -> TurnNotes:
    """`following` are the messages that stand behind the turn in the file; None where none may."""
    turn, state = record.turn, record.next_state
    is_here = state is None or state.messages == following
    return TurnNotes(
        index=turn.index,
        parent=turn.parent,
        kind=turn.kind,
        created_at=turn.created_at,
        finished_at=turn.finished_at,
        dialect=turn.dialect,
        sampling=turn.sampling,
        stop=turn.stop,
        num_prefill=turn.num_prefill,
        finish_reason=turn.completion.finish_reason,
        version_spans=turn.completion.version_spans,
        top_logprobs=turn.completion.top_logprobs,
        skip=turn.skip,
        delivered=turn.delivered,
        label=turn.label,
        retrievable=turn.retrievable,
        arrived_at=None if state is None else state.arrived_at,
        followed_by=None if state is None or is_here else state.messages,
        feedback=tuple(replace(given, user=LOCAL_USER) for given in record.feedback),
        judgement=recording.judgements.get(turn.index),
    )


def told_record(session: str, said: ToldTurn, notes: TurnNotes, *, following: tuple[Message, ...]) -> TurnRecord:
    """The turn of which a file tells, and what followed it. ValueError where its parts do not fit together."""
    require(bool(said.messages), "the answer has no message before it, so nobody knows what it answers")
    turn = Turn(
        session=session,
        index=notes.index,
        parent=notes.parent,
        kind=notes.kind,
        created_at=notes.created_at,
        finished_at=notes.finished_at,
        dialect=notes.dialect,
        model=said.model,
        messages=said.messages,
        tools=said.tools,
        sampling=notes.sampling,
        stop=notes.stop,
        prompt_ids=said.prompt_ids,
        num_prefill=notes.num_prefill,
        completion=Completion(
            token_ids=said.token_ids,
            logprobs=said.logprobs,
            finish_reason=notes.finish_reason,
            version_spans=notes.version_spans,
            top_logprobs=notes.top_logprobs,
        ),
        message=said.message,
        request_digest="",
        chain="",
        skip=notes.skip,
        delivered=notes.delivered,
        label=notes.label,
        retrievable=notes.retrievable,
    )
    messages = following if notes.followed_by is None else notes.followed_by
    state = None
    if notes.arrived_at is not None:
        state = NextState(session=session, index=notes.index, messages=messages, arrived_at=notes.arrived_at)
    given = (replace(one, session=session, index=notes.index, user=LOCAL_USER) for one in notes.feedback)
    return TurnRecord(turn=turn, next_state=state, feedback=tuple(given))


def plain_notes(
    said: ToldTurn, *, index: int, parent: int | None, at: float, finish_reason: FinishReason, is_followed: bool
) -> TurnNotes:
    """What is known of a turn that others recorded: next to nothing."""
    return TurnNotes(
        index=index,
        parent=parent,
        kind="main",
        created_at=at,
        finished_at=at,
        dialect="chat",
        sampling=Sampling(max_tokens=max(1, len(said.token_ids))),
        stop=(),
        num_prefill=0,
        finish_reason=finish_reason,
        version_spans=(VersionSpan(UNKNOWN, 0, len(said.token_ids)),) if said.token_ids else (),
        top_logprobs=None,
        skip=None,
        delivered=True,
        label="",
        retrievable=True,
        arrived_at=at if is_followed else None,
        followed_by=None,
        feedback=(),
        judgement=None,
    )


class ToldSession:
    """A session while files are read that tell of it. Nobody but its reader owns it."""

    def __init__(self, name: str, *, client: str) -> None:
        self.name = name
        self.notes: SessionNotes | None = None
        self._client = client
        self._records: dict[int, TurnRecord] = {}
        self._judgements: dict[int, Judgement] = {}

    @property
    def next_index(self) -> int:
        return max(self._records, default=-1) + 1

    def add(self, record: TurnRecord, judgement: Judgement | None) -> None:
        """ValueError for a turn that was told before."""
        index = record.turn.index
        require(index not in self._records, f"turn {index} of session {self.name} is told twice")
        self._records[index] = record
        if judgement is not None:
            self._judgements[index] = replace(judgement, session=self.name, index=index)

    def recording(self) -> Recording:
        records = tuple(self._records[index] for index in sorted(self._records))
        session = Session(
            id=self.name,
            user=LOCAL_USER,
            client=self._client,
            opened_at=min(record.turn.created_at for record in records),
            last_seen_at=max(record.turn.finished_at for record in records),
        )
        if self.notes is not None:
            session = replace(self.notes.session, id=self.name, user=LOCAL_USER)
        outcome = self.notes.outcome if self.notes is not None else None
        return Recording(session=session, records=records, judgements=self._judgements, outcome=outcome)
