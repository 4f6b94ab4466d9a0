"""Sessions as OpenEnv's training traces and back: all turns with ids, equal in both directions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, given, settings

from openclaw_rl.envs.trajectories.parsing import TrajectoryError
from openclaw_rl.envs.trajectories.recording import UNKNOWN, Recording
from openclaw_rl.envs.trajectories.training_trace import is_traceable, read_training_trace, training_trace
from openclaw_rl.types import Message, Skip, TurnRecord, VersionSpan
from tests.factories.turns import make_session, make_turn
from tests.unit.envs.trajectories.sessions import recordings


def read(trace: Any, file: str = "trace.json") -> Recording:
    return read_training_trace(orjson.dumps(trace), file=file)


def traceable(recording: Recording) -> Recording:
    records = tuple(record for record in recording.records if is_traceable(record.turn))
    kept = {record.turn.index for record in records}
    judgements = {index: judged for index, judged in recording.judgements.items() if index in kept}
    return replace(recording, records=records, judgements=judgements)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(recordings())
def test_what_is_written_is_read_and_what_is_read_is_written(recording: Recording) -> None:
    trace = training_trace(recording)
    kept = traceable(recording)
    assert [turn["node_id"] for turn in trace["turns"]] == [record.turn.id for record in kept.records]
    if not kept.records:
        return
    again = read(trace)
    assert again == kept
    assert training_trace(again) == trace


def test_a_mask_covers_the_answer_of_a_turn_that_is_learned_from() -> None:
    turns = (
        make_turn(0),
        make_turn(1, kind="side"),
        make_turn(2, skip=Skip.OPTED_OUT),
        make_turn(3, token_ids=()),
        make_turn(4, skip=Skip.NO_NEXT_STATE),
    )
    sure = replace(turns[4].completion, logprobs=(0.0, -0.0, 1e-9))
    records = tuple(
        TurnRecord(turn=turn, next_state=None, feedback=()) for turn in (*turns, make_turn(5, completion=sure))
    )
    trace = training_trace(Recording(session=make_session(), records=records))
    assert [turn["loss_mask"] for turn in trace["turns"]] == [
        [0, 0, 0, 1, 1, 1],
        [0, 0, 0, 0, 0, 0],
        [0, 0, 0, 0, 0, 0],
        [0, 0, 0, 1, 1, 1],
    ]
    first = trace["turns"][0]
    assert (first["node_id"], first["prompt_token_ids"], first["completion_token_ids"], first["per_token_logps"]) == (
        "s-1.0",
        [1, 9690, 198],
        [19556, 17, 2],
        [-0.25, -0.5, -0.75],
    )
    assert first["request"]["messages"] == [{"role": "user", "content": "how are you, s-1?"}]
    assert first["response"]["choices"] == [
        {"message": {"role": "assistant", "content": "fine"}, "finish_reason": "stop"}
    ]
    assert first["metadata"]["openclaw_rl"]["session"]["session"]["user"] == "local"
    assert [turn["metadata"]["openclaw_rl"]["session"] for turn in trace["turns"][1:]] == [None, None, None]


def turn(name: str, prompt: list[int], completion: list[Any], **changes: Any) -> dict[str, Any]:
    return {
        "node_id": name,
        "prompt_token_ids": prompt,
        "completion_token_ids": completion,
        "per_token_logps": [-0.5] * len(completion),
        "loss_mask": [0] * len(prompt) + [1] * len(completion),
        "request": {"messages": [{"role": "user", "content": "a"}]},
        **changes,
    }


def foreign(**changes: Any) -> dict[str, Any]:
    asked = [
        {"role": "developer", "content": [{"type": "text", "text": "Be quick."}]},
        {"role": "user", "content": "a"},
    ]
    call = {"id": "c1", "type": "function", "function": {"name": "ls", "arguments": "{}"}}
    answered = {"role": "assistant", "content": None, "tool_calls": [call]}
    told = [*asked, answered, {"role": "tool", "content": "x", "tool_call_id": "c1"}]
    return {
        "schema_version": 1,
        "turns": [
            turn(
                "n0",
                [1, 2],
                [3, 4],
                request={"messages": asked, "tools": [{"type": "function", "function": {"name": "ls"}}], "top_p": 0.9},
                response={"choices": [{"message": answered, "finish_reason": "tool_calls", "index": 0}]},
                metadata={"model": "qwen", "n_tools": 1},
            ),
            turn("n1", [1, 2, 3, 4, 5], [6], request={"messages": told}, loss_mask=[0, 0, 0, 0, 0, 0]),
            turn("n2", [1, 2, 9], [7, 8], loss_mask=[0, 0, 0, 1, 0]),
            turn("n3", [1, 2, 3, 4, 5, 6, 7], [8]),
        ],
        **changes,
    }


def test_what_others_captured_becomes_a_session() -> None:
    recording = read(foreign(), "run-9.json")
    assert (recording.session.id, recording.session.user) == ("run-9", "local")
    first, second, partly, last = (record.turn for record in recording.records)
    assert [turn.parent for turn in (first, second, partly, last)] == [None, 0, None, 1], "by the longest prefix"
    assert [(message.role, message.content) for message in first.messages] == [("system", "Be quick."), ("user", "a")]
    assert (first.model, first.tools[0].name, first.completion.finish_reason) == ("qwen", "ls", "tool_calls")
    assert (first.prompt_ids, first.completion.token_ids, first.completion.logprobs) == ((1, 2), (3, 4), (-0.5, -0.5))
    assert first.completion.version_spans == (VersionSpan(UNKNOWN, 0, 2),)
    followed = recording.records[0].next_state
    assert followed is not None
    assert followed.messages == (Message(role="tool", content="x", tool_call_id="c1"),)
    assert [turn.skip for turn in (first, second, partly, last)] == [None, Skip.OPTED_OUT, Skip.OPTED_OUT, None]
    assert recording.records[2].next_state is None
    assert read(training_trace(recording)) == recording


@pytest.mark.parametrize("skip", [None, Skip.NO_NEXT_STATE])
def test_the_mask_of_a_file_is_obeyed_whatever_our_notes_say(skip: Skip | None) -> None:
    told = TurnRecord(turn=make_turn(skip=skip), next_state=None, feedback=())
    trace = training_trace(Recording(session=make_session(), records=(told,)))
    trace["turns"][0]["loss_mask"][-1] = 0
    assert read(trace).records[0].turn.skip is Skip.OPTED_OUT


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"schema_version": 2}, "schema_version"),
        ({"reward": 1.0}, "reward: Extra inputs are not permitted"),
        ({"turns": []}, "turns: there is none"),
        ({"turns": [turn("n", [1], [2]), turn("n", [1], [2])]}, "two turns have the same node_id"),
        ({"turns": [turn("", [1], [2])]}, "turns.0.node_id"),
        ({"turns": [turn("n", [], [2])]}, "turns.0.prompt_token_ids"),
        ({"turns": [turn("n", [1], [-2])]}, "turns.0: Value error, token ids must not be negative"),
        ({"turns": [turn("n", [1], [2.0])]}, "turns.0.completion_token_ids.0"),
        ({"turns": [turn("n", [1], [2], per_token_logps=[])]}, "1 token ids came with 0 log-probs"),
        ({"turns": [turn("n", [1], [2], per_token_logps=[0.5])]}, "log-probs must not be positive"),
        ({"turns": [turn("n", [1], [2], loss_mask=[0])]}, "covers prompt and completion"),
        ({"turns": [turn("n", [1], [2], loss_mask=[1, 1])]}, "the loss mask of a prompt is zero"),
        ({"turns": [turn("n", [1], [2], loss_mask=[0, 2])]}, "turns.0.loss_mask.1"),
        ({"turns": [turn("n", [1], [2], advantage=1)]}, "turns.0.advantage: Extra inputs"),
        ({"turns": [turn("n", [1], [2], request={"messages": [{"role": "x"}]})]}, "turns.0.request.messages.0.role"),
        ({"turns": [turn("n", [1], [2], request={})]}, "turns.0: the answer has no message before it"),
        ({"turns": [turn("n", [1], [2], metadata={"openclaw_rl": {}})]}, "turns.0.metadata.openclaw_rl.turn"),
        (
            {
                "turns": [
                    turn("n", [1], [2], request={"messages": [{"role": "user", "content": [{"type": "image_url"}]}]})
                ]
            },
            "'image_url' is not kept",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_broken_trace_is_told_by_its_place(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(TrajectoryError) as caught:
        read(foreign(**changes), "bad.json")
    assert str(caught.value).startswith("bad.json: ")
    assert reason in str(caught.value)


def test_notes_that_do_not_fit_the_turn_are_told_by_their_place() -> None:
    recording = Recording(session=make_session(), records=(TurnRecord(turn=make_turn(), next_state=None, feedback=()),))
    trace = training_trace(recording)
    trace["turns"][0]["metadata"]["openclaw_rl"]["turn"]["num_prefill"] = 9
    with pytest.raises(TrajectoryError, match=r"trace\.json: turns\.0: num_prefill exceeds the prompt"):
        read(trace)
