"""Recordings as OpenEnv's TrainingTrace, version 1, and such traces as recordings.

    {"schema_version": 1, "turns": [{"node_id": "s-1.0", "prompt_token_ids": […], "completion_token_ids": […],
     "per_token_logps": […], "loss_mask": […], "request": {…}, "response": {…}, "metadata": {…}}]}

A trace holds what can be trained on: turns without ids and log-probs are not told in it, and the mask of a side turn,
or of one that is skipped, is zero. An answer that nothing followed has a mask of ones: its attempt may have a reward. A
mask that leaves out any sampled token, where others made it, keeps the whole turn out: here a turn is learned from or
not. Parents are found as OpenEnv finds them, by their tokens.

https://github.com/meta-pytorch/OpenEnv (openenv/core/harness/training.py)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, Self, get_args

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, TypeAdapter, model_validator

from openclaw_rl.envs.trajectories.parsing import (
    OfferedFunction,
    TextPart,
    TrajectoryError,
    dumped,
    parsed,
    text_of_parts,
)
from openclaw_rl.envs.trajectories.recording import (
    OURS,
    UNKNOWN,
    Recording,
    SessionNotes,
    ToldSession,
    ToldTurn,
    TurnNotes,
    plain_notes,
    session_notes,
    told_record,
    turn_notes,
)
from openclaw_rl.types import FinishReason, Json, Message, Role, Skip, ToolCall, Turn, TurnRecord
from openclaw_rl.types.checks import require


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceNotes:
    """`session` stands with the first turn alone."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    turn: TurnNotes
    session: SessionNotes | None = None


class _TraceFunction(BaseModel):
    name: str
    arguments: str


class _TraceCall(BaseModel):
    id: str
    function: _TraceFunction


class TraceMessage(BaseModel):
    """A message as OpenAI's chat dialect writes it; what we have no place for is left out."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[TextPart] | None = None
    reasoning_content: str | None = None
    tool_calls: list[_TraceCall] | None = None
    tool_call_id: str | None = None
    name: str | None = None

    def to_message(self) -> Message:
        role: Role = "system" if self.role == "developer" else self.role
        calls = (ToolCall(id=c.id, name=c.function.name, arguments=c.function.arguments) for c in self.tool_calls or ())
        return Message(
            role=role,
            content=text_of_parts(self.content),
            reasoning=self.reasoning_content or "",
            tool_calls=tuple(calls),
            tool_call_id=self.tool_call_id,
            name=self.name,
        )


class TraceRequest(BaseModel):
    messages: list[TraceMessage] = Field(default_factory=list)
    tools: list[OfferedFunction] | None = None


class TraceChoice(BaseModel):
    message: TraceMessage
    finish_reason: str | None = None


class TraceResponse(BaseModel):
    choices: list[TraceChoice] = Field(default_factory=list, max_length=1)


class TraceMetadata(BaseModel):
    model: str | None = None
    openclaw_rl: TraceNotes | None = None


class TraceTurn(BaseModel):
    model_config = ConfigDict(extra="forbid")

    node_id: str = Field(min_length=1)
    prompt_token_ids: list[int] = Field(min_length=1)
    completion_token_ids: list[int]
    per_token_logps: list[FiniteFloat]
    loss_mask: list[Literal[0, 1]]
    request: TraceRequest = TraceRequest()
    response: TraceResponse = TraceResponse()
    metadata: TraceMetadata = TraceMetadata()

    @model_validator(mode="after")
    def _fits(self) -> Self:
        prompt, completion = self.prompt_token_ids, self.completion_token_ids
        require(all(token >= 0 for token in (*prompt, *completion)), "token ids must not be negative")
        sizes = f"{len(completion)} token ids came with {len(self.per_token_logps)} log-probs"
        require(len(self.per_token_logps) == len(completion), sizes)
        require(all(value <= 0.0 for value in self.per_token_logps), "log-probs must not be positive")
        require(len(self.loss_mask) == len(prompt) + len(completion), "the loss mask covers prompt and completion")
        require(not any(self.loss_mask[: len(prompt)]), "the loss mask of a prompt is zero")
        return self

    @property
    def is_learned_from(self) -> bool:
        return all(self.loss_mask[len(self.prompt_token_ids) :])


class TrainingTrace(BaseModel):
    model_config = ConfigDict(extra="forbid")

    schema_version: Literal[1]
    turns: list[TraceTurn]

    @model_validator(mode="after")
    def _names_each_once(self) -> Self:
        names = [turn.node_id for turn in self.turns]
        require(len(set(names)) == len(names), "two turns have the same node_id")
        return self


_UNSKIPPED = (None, Skip.NO_NEXT_STATE)
_TRACE = TypeAdapter(TrainingTrace)
_NOTES = TypeAdapter(TraceNotes)


def is_traceable(turn: Turn) -> bool:
    """Whether a trace can hold the turn: with ids, and log-probs that are such to the last digit."""
    completion = turn.completion
    return bool(turn.prompt_ids and completion.token_ids) and all(value <= 0.0 for value in completion.logprobs)


def training_trace(recording: Recording) -> dict[str, Json]:
    """The turns of a session that `is_traceable`, in order."""
    told = [record for record in recording.records if is_traceable(record.turn)]
    session = session_notes(recording)
    turns = [_turn(recording, record, None if number else session) for number, record in enumerate(told)]
    return {"schema_version": 1, "turns": turns}


def _turn(recording: Recording, record: TurnRecord, session: SessionNotes | None) -> dict[str, Json]:
    turn, completion = record.turn, record.turn.completion
    learned = int(turn.kind == "main" and turn.skip in _UNSKIPPED)
    notes = TraceNotes(turn=turn_notes(recording, record, following=None), session=session)
    return {
        "node_id": turn.id,
        "prompt_token_ids": list(turn.prompt_ids),
        "completion_token_ids": list(completion.token_ids),
        "per_token_logps": list(completion.logprobs),
        "loss_mask": [0] * len(turn.prompt_ids) + [learned] * len(completion.token_ids),
        "request": {
            "messages": [message.to_json() for message in turn.messages],
            "tools": [tool.to_json() for tool in turn.tools],
        },
        "response": {"choices": [{"message": turn.message.to_json(), "finish_reason": completion.finish_reason}]},
        "metadata": {
            "index": turn.index,
            "model": turn.model,
            "sampling_params": turn.sampling.to_json(),
            OURS: dumped(_NOTES, notes),
        },
    }


def read_training_trace(raw: bytes, *, file: str) -> Recording:
    """The session that a trace tells of; of one that names none the file's name is its name. TrajectoryError."""
    turns = parsed(_TRACE, raw, file=file).turns
    if not turns:
        raise TrajectoryError(f"{file}: turns: there is none")
    noted = [turn.metadata.openclaw_rl for turn in turns]
    session = next((notes.session for notes in noted if notes is not None and notes.session is not None), None)
    told = ToldSession(file.removesuffix(".json") if session is None else session.session.id, client="openenv")
    told.notes = session
    parents = _parents(turns)
    for number, (turn, ours) in enumerate(zip(turns, noted, strict=True)):
        try:
            said = _said(turn)
            following = () if ours is not None else _following(turns, parents, number)
            notes = _plain(turn, said, number, parents[number], following) if ours is None else ours.turn
            if notes.skip in _UNSKIPPED and notes.kind == "main" and not turn.is_learned_from:
                notes = replace(notes, skip=Skip.OPTED_OUT)
            told.add(told_record(told.name, said, notes, following=following), notes.judgement)
        except ValueError as error:
            raise TrajectoryError(f"{file}: turns.{number}: {error}") from error
    return told.recording()


def _said(turn: TraceTurn) -> ToldTurn:
    choices = turn.response.choices
    return ToldTurn(
        model=turn.metadata.model or UNKNOWN,
        messages=tuple(message.to_message() for message in turn.request.messages),
        tools=tuple(tool.to_tool() for tool in turn.request.tools or ()),
        message=choices[0].message.to_message() if choices else Message(role="assistant"),
        prompt_ids=tuple(turn.prompt_token_ids),
        token_ids=tuple(turn.completion_token_ids),
        logprobs=tuple(turn.per_token_logps),
    )


def _plain(turn: TraceTurn, said: ToldTurn, index: int, parent: int | None, following: Sequence[Message]) -> TurnNotes:
    """Notes of a turn that others recorded."""
    known: dict[str | None, FinishReason] = {name: name for name in get_args(FinishReason)}
    choices = turn.response.choices
    reason = known.get(choices[0].finish_reason if choices else None, "stop")
    return plain_notes(said, index=index, parent=parent, at=0.0, finish_reason=reason, is_followed=bool(following))


def _parents(turns: Sequence[TraceTurn]) -> list[int | None]:
    """For each turn the earlier one whose tokens its prompt begins with; of several the one with the most."""
    ids = [turn.prompt_token_ids + turn.completion_token_ids for turn in turns]

    def goes_on(prompt: Sequence[int], whole: Sequence[int]) -> bool:
        size = len(whole)
        # Looking at one token first spares most of the copies: a trace may have thousands of long turns.
        return len(prompt) >= size and prompt[size - 1] == whole[-1] and prompt[:size] == whole

    found: list[int | None] = []
    for number, turn in enumerate(turns):
        before = [place for place in range(number) if goes_on(turn.prompt_token_ids, ids[place])]
        found.append(max(before, key=lambda place: len(ids[place]), default=None))
    return found


def _following(turns: Sequence[TraceTurn], parents: Sequence[int | None], number: int) -> tuple[Message, ...]:
    """What the first turn that goes on from this one was told behind the last answer."""
    if number not in parents:
        return ()
    messages = [message.to_message() for message in turns[parents.index(number)].request.messages]
    answers = [place for place, message in enumerate(messages) if message.role == "assistant"]
    return tuple(messages[answers[-1] + 1 :]) if answers else ()
