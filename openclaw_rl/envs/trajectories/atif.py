"""Recordings as ATIF 1.8 trajectories, and any ATIF as recordings.

A trajectory is a line of turns, each of which goes on from the one before: `parent` of the same kind. A turn that goes
on from elsewhere (a branch, a retry, a side turn) begins another trajectory of the same `session_id`; what it was told
of earlier answers is copied context there. So no answer stands twice in all of them.

    system, user      a message of that role; a tool's answer without its call stands as `system`
    agent             a turn, with its ids and log-probs under `metrics`; or an answer of the history, copied context
    observation       what the tools of that step answered
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

import orjson
from pydantic import TypeAdapter

from openclaw_rl.envs.trajectories.atif_shapes import (
    SCHEMA_VERSION,
    AtifMetrics,
    AtifResult,
    AtifStep,
    AtifToolCall,
    AtifTrajectory,
    CallNotes,
    StepNotes,
)
from openclaw_rl.envs.trajectories.parsing import TrajectoryError, dumped, parsed, text_of_parts
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
from openclaw_rl.types import FinishReason, Json, Message, Role, Tool, ToolCall, Turn, TurnRecord

_TRAJECTORY = TypeAdapter(AtifTrajectory)
_STEP_NOTES = TypeAdapter(StepNotes)
_CALL_NOTES = TypeAdapter(CallNotes)
_SESSION_NOTES = TypeAdapter(SessionNotes)


def atif_trajectories(recording: Recording) -> list[dict[str, Json]]:
    """A document for each line of turns, the one with the first turn first."""
    return [_trajectory(recording, line) for line in _lines(recording.records)]


def _lines(records: Sequence[TurnRecord]) -> list[list[TurnRecord]]:
    lines: list[list[TurnRecord]] = []
    ending_in: dict[int, list[TurnRecord]] = {}
    for record in records:
        parent = record.turn.parent
        line = ending_in.get(parent) if parent is not None else None
        if line is not None and parent is not None and _goes_on(line[-1].turn, record.turn):
            del ending_in[parent]
        else:
            line = []
            lines.append(line)
        line.append(record)
        ending_in[record.turn.index] = line
    return lines


def _goes_on(before: Turn, turn: Turn) -> bool:
    """Whether a request has the earlier answer, or what a client made of it, where it was given."""
    place = len(before.messages)
    is_told = len(turn.messages) > place and turn.messages[place].role == "assistant"
    return is_told and turn.kind == before.kind


def _trajectory(recording: Recording, line: Sequence[TurnRecord]) -> dict[str, Json]:
    first, steps = line[0].turn, _Steps()
    steps.add(first.messages)
    before: Turn | None = None
    for number, record in enumerate(line):
        turn, state = record.turn, record.next_state
        if number + 1 < len(line):
            following = line[number + 1].turn.messages[len(turn.messages) + 1 :]
        else:
            following = () if state is None else state.messages
        notes = StepNotes(
            turn=turn_notes(recording, record, following=following),
            replaced=None if before is None else _replaced(before, turn) or None,
            tools=None if turn.tools == first.tools else turn.tools,
        )
        steps.add_turn(turn, notes, model=None if turn.model == first.model else turn.model)
        steps.add(following)
        before = turn
    agent: dict[str, Json] = {"name": recording.session.client, "version": UNKNOWN, "model_name": first.model}
    if first.tools:
        agent["tool_definitions"] = [tool.to_json() for tool in first.tools]
    return {
        "schema_version": SCHEMA_VERSION,
        "session_id": recording.session.id,
        "trajectory_id": first.id,
        "agent": agent,
        "steps": steps.written,
        "final_metrics": {
            "total_prompt_tokens": sum(len(record.turn.prompt_ids) for record in line),
            "total_completion_tokens": sum(len(record.turn.completion.token_ids) for record in line),
            "total_steps": len(steps.written),
        },
        "extra": {OURS: dumped(_SESSION_NOTES, session_notes(recording))},
    }


def _replaced(before: Turn, turn: Turn) -> dict[int, Message]:
    """What a request says otherwise than the one before it and its answer: a clock, an answer that was trimmed."""
    told = (*before.messages, before.message)
    return {place: new for place, (old, new) in enumerate(zip(told, turn.messages, strict=False)) if old != new}


class _Steps:
    """Steps as they are written, one message after the other."""

    def __init__(self) -> None:
        self.written: list[dict[str, Json]] = []

    def add(self, messages: Sequence[Message]) -> None:
        """Messages that the model did not sample here."""
        for message in messages:
            last = self.written[-1] if self.written else {}
            called = [call["tool_call_id"] for call in last.get("tool_calls", ())]
            if message.role == "tool" and message.tool_call_id in called:
                last.setdefault("observation", {"results": []})["results"].append(_result(message))
            elif message.role == "assistant":
                self._add(_answer(message), StepNotes(message=_unless_plain(message)), is_copied_context=True)
            else:
                source: Role = "user" if message.role == "user" else "system"
                is_plain = message == Message(role=source, content=message.content)
                said = {"source": source, "message": message.content}
                self._add(said, StepNotes(message=None if is_plain else message))

    def add_turn(self, turn: Turn, notes: StepNotes, *, model: str | None) -> None:
        said = _answer(turn.message)
        if model is not None:
            said["model_name"] = model
        completion = turn.completion
        if turn.prompt_ids or completion.token_ids:
            said["metrics"] = {
                "prompt_tokens": len(turn.prompt_ids),
                "completion_tokens": len(completion.token_ids),
                "prompt_token_ids": list(turn.prompt_ids),
                "completion_token_ids": list(completion.token_ids),
                "logprobs": list(completion.logprobs),
            }
        at = datetime.fromtimestamp(turn.created_at, UTC).isoformat()
        self._add(said, replace(notes, message=_unless_plain(turn.message)), timestamp=at)

    def _add(self, said: dict[str, Json], notes: StepNotes, **more: Json) -> None:
        step = {"step_id": len(self.written) + 1, **said, **more}
        if notes != StepNotes():
            step["extra"] = {OURS: dumped(_STEP_NOTES, notes)}
        self.written.append(step)


def _answer(message: Message) -> dict[str, Json]:
    step: dict[str, Json] = {"source": "agent", "message": message.content}
    if message.reasoning:
        step["reasoning_content"] = message.reasoning
    if message.tool_calls:
        step["tool_calls"] = [_call(call) for call in message.tool_calls]
    return step


def _unless_plain(message: Message) -> Message | None:
    """An answer, if a step cannot hold all of it."""
    return None if message == replace(message, tool_call_id=None, name=None) else message


def _call(call: ToolCall) -> dict[str, Json]:
    arguments, text = _arguments(call.arguments)
    written: dict[str, Json] = {"tool_call_id": call.id, "function_name": call.name, "arguments": arguments}
    if text != call.arguments:
        written["extra"] = {OURS: dumped(_CALL_NOTES, CallNotes(arguments=call.arguments))}
    return written


def _arguments(sampled: str) -> tuple[dict[str, Json], str]:
    """The object that was sampled, empty where it is none, and the text that is read back from it."""
    try:
        arguments = orjson.loads(sampled)
        orjson.dumps(arguments)
    except (orjson.JSONDecodeError, orjson.JSONEncodeError):
        arguments = None
    arguments = arguments if isinstance(arguments, dict) else {}
    return arguments, _text(arguments)


def _text(arguments: Mapping[str, Json]) -> str:
    return json.dumps(arguments, ensure_ascii=False)


def _result(message: Message) -> dict[str, Json]:
    result: dict[str, Json] = {"source_call_id": message.tool_call_id, "content": message.content}
    if message != Message(role="tool", content=message.content, tool_call_id=message.tool_call_id):
        result["extra"] = {OURS: dumped(_STEP_NOTES, StepNotes(message=message))}
    return result


def read_atif(files: Mapping[str, bytes]) -> list[Recording]:
    """The sessions that documents tell of, by the names of their files. Embedded trajectories are read like others.

    TrajectoryError with the file and the place for what is no ATIF, or holds pictures or sounds.
    """
    sessions: dict[str, ToldSession] = {}
    for file, raw in files.items():
        root = parsed(_TRAJECTORY, raw, file=file)
        for session, place, trajectory in _embedded(root, root.session_id or file.removesuffix(".json"), ""):
            told = sessions.setdefault(session, ToldSession(session, client=trajectory.agent.name))
            _read(trajectory, told, f"{file}: {place}")
    return [told.recording() for told in sessions.values()]


def _embedded(root: AtifTrajectory, session: str, place: str) -> Iterator[tuple[str, str, AtifTrajectory]]:
    yield session, place, root
    for number, each in enumerate(root.subagent_trajectories or ()):
        yield from _embedded(each, each.session_id or session, f"{place}subagent_trajectories.{number}.")


def _read(trajectory: AtifTrajectory, told: ToldSession, place: str) -> None:
    if trajectory.extra is not None and trajectory.extra.openclaw_rl is not None:
        told.notes = trajectory.extra.openclaw_rl
    agent, steps = trajectory.agent, trajectory.steps
    tools = tuple(tool.to_tool() for tool in agent.tool_definitions or ())
    turns = [number for number, step in enumerate(steps) if step.is_turn]
    if not turns:
        raise TrajectoryError(f"{place}steps: none of them is an answer of the agent")
    told_by = [_messages(step) for step in steps]
    context = [message for messages in told_by[: turns[0]] for message in messages]
    last: int | None = None
    for number, end in zip(turns, [*turns[1:], len(steps)], strict=True):
        step, (answer, *results) = steps[number], told_by[number]
        following = (*results, *(message for messages in told_by[number + 1 : end] for message in messages))
        try:
            context = _with(context, step.notes.replaced or {})
            said = _said(step, context, answer, tools, agent.model_name or UNKNOWN)
            notes = step.notes.turn or _plain(step, said, told.next_index, last, is_followed=bool(following))
            told.add(told_record(told.name, said, notes, following=following), notes.judgement)
        except ValueError as error:
            raise TrajectoryError(f"{place}steps.{number}: {error}") from error
        context, last = [*context, answer, *following], notes.index


def _with(context: Sequence[Message], replaced: Mapping[int, Message]) -> list[Message]:
    if not replaced.keys() <= set(range(len(context))):
        raise ValueError(f"replaces messages {sorted(replaced)} of {len(context)}")
    return [replaced.get(place, message) for place, message in enumerate(context)]


def _messages(step: AtifStep) -> list[Message]:
    """What a step says, and then what its tools answered."""
    content = text_of_parts(step.message)
    if step.notes.message is not None:
        said = step.notes.message
    elif step.source == "agent":
        calls = tuple(map(_called, step.tool_calls or ()))
        said = Message(role="assistant", content=content, reasoning=step.reasoning_content or "", tool_calls=calls)
    else:
        said = Message(role=step.source, content=content)
    return [said, *(_answered(result) for result in (step.observation.results if step.observation else ()))]


def _called(call: AtifToolCall) -> ToolCall:
    ours = call.extra.openclaw_rl if call.extra is not None else None
    arguments = _text(call.arguments) if ours is None else ours.arguments
    return ToolCall(id=call.tool_call_id, name=call.function_name, arguments=arguments)


def _answered(result: AtifResult) -> Message:
    ours = result.extra.openclaw_rl if result.extra is not None else None
    if ours is not None and ours.message is not None:
        return ours.message
    return Message(role="tool", content=text_of_parts(result.content), tool_call_id=result.source_call_id)


def _said(step: AtifStep, context: Sequence[Message], answer: Message, tools: tuple[Tool, ...], model: str) -> ToldTurn:
    metrics = step.metrics or AtifMetrics()
    ids = (metrics.prompt_token_ids or (), metrics.completion_token_ids or (), metrics.logprobs or ())
    if step.notes.turn is None and not all(ids):
        ids = ((), (), ())  # a part of them is of no use to anybody
    prompt_ids, token_ids, logprobs = ids
    return ToldTurn(
        model=step.model_name or model,
        messages=tuple(context),
        tools=tools if step.notes.tools is None else step.notes.tools,
        message=answer,
        prompt_ids=tuple(prompt_ids),
        token_ids=tuple(token_ids),
        logprobs=tuple(logprobs),
    )


def _plain(step: AtifStep, said: ToldTurn, index: int, parent: int | None, *, is_followed: bool) -> TurnNotes:
    at = 0.0
    if step.timestamp is not None:
        time = datetime.fromisoformat(step.timestamp)
        at = (time if time.tzinfo is not None else time.replace(tzinfo=UTC)).timestamp()
    reason: FinishReason = "tool_calls" if said.message.tool_calls else "stop"
    return plain_notes(said, index=index, parent=parent, at=at, finish_reason=reason, is_followed=is_followed)
