"""Sessions as ATIF and back: equal in both directions, and a broken file is told by its place."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, given, settings

from openclaw_rl.envs.trajectories.atif import atif_trajectories, read_atif
from openclaw_rl.envs.trajectories.parsing import TrajectoryError
from openclaw_rl.envs.trajectories.recording import UNKNOWN, Recording
from openclaw_rl.types import Feedback, Message, NextState, Outcome, Skip, ToolCall, TurnRecord, VersionSpan
from tests.factories.turns import make_session, make_turn
from tests.unit.envs.trajectories.sessions import recordings

CALL = Message(
    role="assistant", reasoning="Look.", tool_calls=(ToolCall(id="c1", name="ls", arguments='{"all":true}'),)
)
LISTED = Message(role="tool", content="notes.txt", tool_call_id="c1")


def files(*documents: dict[str, Any]) -> dict[str, bytes]:
    return {f"t{number}.json": orjson.dumps(document) for number, document in enumerate(documents)}


def read_one(*documents: dict[str, Any]) -> Recording:
    (recording,) = read_atif(files(*documents))
    return recording


def record(turn: Any, *followed: Message) -> TurnRecord:
    bare = replace(turn, chain="", request_digest="")
    state = NextState(session=turn.session, index=turn.index, messages=followed, arrived_at=200.0) if followed else None
    return TurnRecord(turn=bare, next_state=state, feedback=())


def conversation() -> Recording:
    """A call, its answer, a title beside it, and a second try of the last answer."""
    ask = Message(role="user", content="What is here?")
    first = make_turn(0, messages=(Message(role="system", content="Be kind."), ask), message=CALL)
    history = (*first.messages, CALL, LISTED)
    second = make_turn(1, parent=0, messages=history, text="A file.", skip=None)
    title = make_turn(2, parent=None, kind="side", messages=(ask,), text="Files", skip=Skip.SIDE_TURN)
    again = make_turn(3, parent=0, messages=history, text="notes.txt", token_ids=(5, 6))
    thanks = Message(role="user", content="Thanks!")
    return Recording(
        session=make_session(user="local", client="openclaw"),
        records=(record(first, LISTED), record(second), record(title), record(again, thanks)),
        outcome=Outcome(episode="e-1", ended_at=1.0, reward=0.5),
    )


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(recordings())
def test_what_is_written_is_read_and_what_is_read_is_written(recording: Recording) -> None:
    documents = atif_trajectories(recording)
    read = read_one(*documents)
    assert read == recording
    assert atif_trajectories(read) == documents


def test_a_line_of_turns_is_a_trajectory_and_what_branches_off_another() -> None:
    main, title, again = atif_trajectories(conversation())
    assert [step["source"] for step in main["steps"]] == ["system", "user", "agent", "agent"]
    call = main["steps"][2]
    assert (call["message"], call["reasoning_content"], call["timestamp"]) == ("", "Look.", "1970-01-01T00:01:40+00:00")
    assert call["tool_calls"][0]["arguments"] == {"all": True}
    assert call["tool_calls"][0]["extra"] == {"openclaw_rl": {"arguments": '{"all":true}'}}
    assert call["observation"] == {"results": [{"source_call_id": "c1", "content": "notes.txt"}]}
    metrics = call["metrics"]
    assert (metrics["prompt_token_ids"], metrics["completion_token_ids"]) == ([1, 9690, 198], [19556, 17, 2])
    assert (metrics["logprobs"], metrics["prompt_tokens"], metrics["completion_tokens"]) == ([-0.25, -0.5, -0.75], 3, 3)
    assert call["extra"]["openclaw_rl"]["turn"]["version_spans"] == [{"version": "v0", "start": 0, "end": 3}]
    assert "is_copied_context" not in call
    assert main["final_metrics"] == {"total_prompt_tokens": 6, "total_completion_tokens": 6, "total_steps": 4}
    assert main["extra"]["openclaw_rl"]["outcome"]["reward"] == 0.5
    assert [step["source"] for step in title["steps"]] == ["user", "agent"]
    assert [step["source"] for step in again["steps"]] == ["system", "user", "agent", "agent", "user"]
    assert again["steps"][2]["is_copied_context"] is True, "it is trained on in its own trajectory"
    assert "metrics" not in again["steps"][2]
    assert again["steps"][-1]["message"] == "Thanks!"
    assert [each["trajectory_id"] for each in (main, title, again)] == ["s-1.0", "s-1.2", "s-1.3"]
    assert {each["session_id"] for each in (main, title, again)} == {"s-1"}


def test_an_answer_that_a_client_sends_back_otherwise_is_told_once() -> None:
    first = make_turn(0, messages=(Message(role="user", content="a"),), message=replace(CALL, content=" hm "))
    echo = replace(CALL, reasoning="")
    second = make_turn(1, parent=0, messages=(*first.messages, echo, LISTED), text="b")
    third = make_turn(2, parent=1, messages=(*second.messages, second.message, LISTED), text="c")
    recording = Recording(session=make_session(user="local"), records=(record(first), record(second), record(third)))
    (document,) = atif_trajectories(recording)
    notes = [step["extra"]["openclaw_rl"] for step in document["steps"] if "metrics" in step]
    assert [None if one["replaced"] is None else list(one["replaced"]) for one in notes] == [None, ["1"], None]
    assert read_one(document) == recording


def test_whose_a_session_was_is_neither_told_nor_believed() -> None:
    recording = conversation()
    given = Feedback(session="s-1", index=0, user="ann", given_at=1.0, score=1)
    records = (replace(recording.records[0], feedback=(given,)), *recording.records[1:])
    documents = atif_trajectories(replace(recording, session=make_session(user="ann"), records=records))
    assert b'"ann"' not in orjson.dumps(documents)
    for document in documents:
        document["extra"]["openclaw_rl"]["session"]["user"] = "bob"
        document["steps"][2 if len(document["steps"]) > 2 else 1].get("extra", {})
    read = read_one(*documents)
    assert read.session.user == "local"
    assert [one.user for one in read.records[0].feedback] == ["local"]


FOREIGN: dict[str, Any] = {
    "schema_version": "ATIF-v1.4",
    "session_id": "run-7",
    "agent": {
        "name": "terminus-2",
        "version": "2.0",
        "model_name": "qwen",
        "tool_definitions": [{"type": "function", "function": {"name": "ls", "description": None}}],
        "extra": {"parser": "json"},
    },
    "steps": [
        {"step_id": 1, "source": "system", "message": "Be quick."},
        {"step_id": 2, "source": "user", "message": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        {"step_id": 3, "source": "agent", "message": "Earlier.", "is_copied_context": True},
        {
            "step_id": 4,
            "timestamp": "2026-01-02T03:04:05Z",
            "source": "agent",
            "message": "",
            "reasoning_content": "Look.",
            "tool_calls": [{"tool_call_id": "c1", "function_name": "ls", "arguments": {"n": 1}}],
            "observation": {"results": [{"source_call_id": "c1", "content": "x"}, {"content": None}]},
            "metrics": {
                "prompt_token_ids": [1, 2],
                "completion_token_ids": [3, 4],
                "logprobs": [-0.5, -1.5],
                "cost_usd": 0.01,
                "extra": {"any": "thing"},
            },
        },
        {"step_id": 5, "source": "agent", "message": "done by rule", "llm_call_count": 0},
        {
            "step_id": 6,
            "timestamp": "2026-01-02T03:04:06",
            "source": "agent",
            "model_name": "other",
            "message": "Done.",
            "metrics": {"completion_token_ids": [5]},
            "extra": {"theirs": 1},
        },
    ],
    "notes": "from elsewhere",
    "final_metrics": {"total_cost_usd": 0.01},
    "subagent_trajectories": [
        {
            "schema_version": "ATIF-v1.8",
            "trajectory_id": "sub",
            "agent": {"name": "helper", "version": "1"},
            "steps": [
                {"step_id": 1, "source": "user", "message": "Help."},
                {"step_id": 2, "source": "agent", "message": "I helped."},
            ],
        }
    ],
}


def test_what_others_recorded_becomes_a_session() -> None:
    recording = read_one(FOREIGN)
    assert (recording.session.id, recording.session.user, recording.session.client) == ("run-7", "local", "terminus-2")
    one, two, helper = recording.records
    turn = one.turn
    assert [(message.role, message.content) for message in turn.messages] == [
        ("system", "Be quick."),
        ("user", "a\nb"),
        ("assistant", "Earlier."),
    ]
    assert turn.message == replace(CALL, tool_calls=(ToolCall(id="c1", name="ls", arguments='{"n": 1}'),))
    assert (turn.index, turn.parent, turn.kind, turn.model, turn.created_at) == (0, None, "main", "qwen", 1767323045.0)
    assert (turn.prompt_ids, turn.completion.token_ids, turn.completion.logprobs) == ((1, 2), (3, 4), (-0.5, -1.5))
    assert turn.completion.version_spans == (VersionSpan(UNKNOWN, 0, 2),), "nobody knows which version sampled it"
    assert (turn.completion.finish_reason, turn.tools[0].name) == ("tool_calls", "ls")
    assert one.next_state is not None
    assert [(m.role, m.content, m.tool_call_id) for m in one.next_state.messages] == [
        ("tool", "x", "c1"),
        ("tool", "", None),
        ("assistant", "done by rule", None),
    ]
    assert (two.turn.parent, two.turn.model, two.turn.completion.token_ids, two.next_state) == (0, "other", (), None)
    assert two.turn.messages == (*turn.messages, turn.message, *one.next_state.messages)
    assert two.turn.created_at == 1767323046.0
    assert (helper.turn.index, helper.turn.parent, helper.turn.model) == (2, None, UNKNOWN)
    documents = atif_trajectories(recording)
    assert read_one(*documents) == recording


def test_a_document_that_names_no_session_has_the_name_of_its_file() -> None:
    nameless = {**FOREIGN, "session_id": None}
    found = read_atif({"one.json": orjson.dumps(nameless), "two.json": orjson.dumps(nameless)})
    assert [recording.session.id for recording in found] == ["one", "two"]


def changed(*path: Any, to: Any) -> bytes:
    """The foreign document with one value changed, or with one key added."""
    document = orjson.loads(orjson.dumps(FOREIGN))
    place = document
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = to
    return orjson.dumps(document)


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"{", "is no JSON"),
        (b'{"schema_version": NaN}', "is no JSON"),
        (b"[]", "should be an object"),
        (changed("schema_version", to="ATIF-v1.9"), "schema_version: String should match"),
        (changed("steps", to=[]), "steps: List should have at least 1 item"),
        (changed("steps", 3, "step_id", to=9), "step 4 is called 9"),
        (changed("steps", 3, "sauce", to="agent"), "steps.3.sauce: Extra inputs are not permitted"),
        (changed("steps", 3, "source", to="robot"), "steps.3.source"),
        (changed("steps", 3, "timestamp", to="yesterday"), "steps.3.timestamp"),
        (changed("steps", 1, "metrics", to={}), "metrics belongs to a step of the agent, not of the user"),
        (changed("steps", 4, "metrics", to={}), "where llm_call_count is 0"),
        (changed("steps", 3, "observation", "results", 0, "source_call_id", to="c9"), "answers 'c9'"),
        (changed("steps", 3, "metrics", "completion_token_ids", 0, to="3"), "steps.3.metrics.completion_token_ids.0"),
        (changed("steps", 3, "metrics", "logprobs", to=[-0.5]), "steps.3: 2 token ids came with 1 log-probs"),
        (changed("steps", 3, "tool_calls", 0, "arguments", to="{}"), "steps.3.tool_calls.0.arguments"),
        (changed("steps", 1, "message", 0, to={"type": "image", "source": {}}), "'image' is not kept"),
        (changed("agent", "tool_definitions", 0, to={"name": "ls"}), "agent.tool_definitions.0.function"),
        (changed("subagent_trajectories", 0, "trajectory_id", to=None), "embedded trajectories need an id each"),
        (
            changed("subagent_trajectories", 0, "steps", 1, "is_copied_context", to=True),
            "subagent_trajectories.0.steps",
        ),
        (changed("subagent_trajectories", 0, "steps", 0, "source", to="agent"), "has no message before it"),
        (changed("extra", to={"openclaw_rl": {"session": {}}}), "extra.openclaw_rl.session"),
        (changed("steps", 3, "extra", to={"openclaw_rl": {"replaced": {"7": {"role": "user"}}}}), "replaces messages"),
        (changed("steps", 3, "extra", to={"openclaw_rl": {"turn": {"index": 1}}}), "steps.3.extra.openclaw_rl.turn"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_broken_document_is_told_by_its_place(raw: bytes, reason: str) -> None:
    with pytest.raises(TrajectoryError) as caught:
        read_atif({"bad.json": raw})
    assert str(caught.value).startswith("bad.json")
    assert reason in str(caught.value)


def test_a_turn_that_is_told_twice_is_refused() -> None:
    documents = atif_trajectories(conversation())
    with pytest.raises(TrajectoryError, match="turn 0 of session s-1 is told twice"):
        read_atif(files(*documents, documents[0]))
