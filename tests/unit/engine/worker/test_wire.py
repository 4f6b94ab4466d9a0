from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openclaw_rl.engine.worker import wire
from openclaw_rl.errors import EngineError, EngineRefused
from openclaw_rl.types import (
    BACKGROUND,
    Delta,
    EngineState,
    GenerateRequest,
    Hidden,
    HiddenRequest,
    Json,
    Publication,
    Sampling,
    Scored,
    ScoreRequest,
    TokenLogprob,
    VersionSpan,
)
from tests.factories.weights import folder_ref

REQUEST = GenerateRequest(
    request_id="turn-1",
    token_ids=[1, 2, 30000],
    sampling=Sampling(
        max_tokens=7,
        temperature=0.5,
        top_p=0.9,
        top_k=40,
        min_p=0.05,
        repetition_penalty=1.1,
        presence_penalty=0.25,
        frequency_penalty=-0.5,
        logit_bias={5: -100.0, 9: 1.5},
        seed=-3,
        top_logprobs=2,
    ),
    stop_token_ids=(2, 0),
    version="v3",
    priority=5,
    exact=True,
    cache_salt="5a17",
    num_shareable=2,
)

SCORE = ScoreRequest(
    request_id="judge-1",
    sequences=((1, 2, 3), (1, 2, 30000, 4)),
    starts=(2, 1),
    temperature=0.5,
    top_logprobs=2,
    version="v3",
    priority=-4,
    cache_salt="5a17",
)
PUBLICATION = Publication(version="v3", weights=folder_ref("/weights/v3", "ab" * 32), live=False)


def delta(*tokens: int, version: str = "v0", top: bool = False, finish: Any = None) -> Delta:
    return Delta(
        token_ids=tokens,
        logprobs=tuple(-token / 7 for token in tokens),
        version=version,
        top_logprobs=tuple((TokenLogprob(t, -t / 7), TokenLogprob(t + 1, -9.5)) for t in tokens) if top else None,
        finish_reason=finish,
    )


def over_the_wire(value: Any) -> Any:
    return wire.loads(wire.dumps(value))


def body(**changes: Any) -> dict[str, Any]:
    raw: dict[str, Any] = over_the_wire(wire.request_to_json(REQUEST))
    params = {**raw["sampling_params"], **changes.pop("sampling_params", {})}
    return {**raw, "sampling_params": params, **changes}


def score_body(**changes: Any) -> dict[str, Any]:
    return {**over_the_wire(wire.score_request_to_json(SCORE)), **changes}


def test_a_request_survives_the_wire() -> None:
    for stream in (True, False):
        assert wire.request_from_json(over_the_wire(wire.request_to_json(REQUEST, stream=stream))) == (REQUEST, stream)


def test_a_request_has_the_names_of_vllm() -> None:
    raw = body()
    assert raw["model"] == "v3"
    assert raw["return_token_ids"] is True
    assert raw["priority"] == 5
    assert raw["exact"] is True, "ours"
    assert raw["sampling_params"]["logprobs"] == 2
    assert raw["sampling_params"]["stop_token_ids"] == [2, 0]
    assert raw["sampling_params"]["logit_bias"] == {"5": -100.0, "9": 1.5}
    assert "top_logprobs" not in raw["sampling_params"]


def test_what_a_request_leaves_out_is_the_default() -> None:
    raw = {"request_id": "r", "token_ids": [1], "sampling_params": {"max_tokens": 3, "top_k": -1, "seed": None}}
    expected = GenerateRequest(request_id="r", token_ids=[1], sampling=Sampling(max_tokens=3))
    assert wire.request_from_json(raw) == (expected, False)


@pytest.mark.parametrize(
    ("raw", "field"),
    [
        ([], "JSON object"),
        (body(request_id=""), "request_id"),
        (body(request_id=5), "request_id"),
        (body(token_ids="abc"), "token_ids"),
        (body(token_ids=[1, -1]), "token_ids"),
        (body(token_ids=[1, 2.5]), "token_ids"),
        (body(token_ids=[1, None]), "token_ids"),
        (body(token_ids=[2**40]), "token_ids"),
        (body(model=3), "model"),
        (body(priority="high"), "priority"),
        (body(priority=True), "priority"),
        (body(priority=0.5), "priority"),
        (body(cache_salt=""), "cache_salt"),
        (body(cache_salt=7), "cache_salt"),
        (body(num_shareable=-1), "num_shareable"),
        (body() | {"sampling_params": None}, "sampling_params"),
        (body(sampling_params={"max_tokens": 0}), "max_tokens"),
        (body(sampling_params={"max_tokens": None}), "max_tokens"),
        (body(sampling_params={"max_tokens": 2.5}), "max_tokens"),
        (body(sampling_params={"temperature": "hot"}), "sampling_params"),
        (body(sampling_params={"temperature": float("nan")}), "temperature"),
        (body(sampling_params={"top_k": True}), "top_k"),
        (body(sampling_params={"logit_bias": {"x": 1}}), "sampling_params"),
        (body(sampling_params={"logit_bias": [1]}), "sampling_params"),
        (body(sampling_params={"logprobs": 21}), "top_logprobs"),
        (body(sampling_params={"stop_token_ids": [-4]}), "stop_token_ids"),
    ],
)
def test_a_wrong_request_is_refused_and_the_field_named(raw: Any, field: str) -> None:
    with pytest.raises(EngineRefused, match=field) as refusal:
        wire.request_from_json(raw)
    assert refusal.value.status == 400


@pytest.mark.parametrize("top", [True, False])
def test_a_chunk_survives_the_wire(top: bool) -> None:
    sent = delta(5, 6, top=top)
    assert wire.delta_from_json(over_the_wire(wire.chunk_to_json("r", sent))) == sent


def test_the_last_chunk_carries_spans_and_usage() -> None:
    spans = [VersionSpan("v1", 0, 4), VersionSpan("v2", 4, 5)]
    sent = Delta(token_ids=(9,), logprobs=(-1.5,), version="v2", finish_reason="stop", num_cached_tokens=2)
    raw = over_the_wire(wire.last_chunk_to_json(REQUEST, sent, spans))
    assert raw["choices"][0]["weight_versions"] == [
        {"version": "v1", "start": 0, "end": 4},
        {"version": "v2", "start": 4, "end": 5},
    ]
    assert raw["usage"] == {
        "prompt_tokens": 3,
        "completion_tokens": 5,
        "prompt_tokens_details": {"cached_tokens": 2},
    }
    assert wire.delta_from_json(raw) == sent


def test_an_answer_without_tokens_has_no_spans() -> None:
    raw = over_the_wire(wire.last_chunk_to_json(REQUEST, delta(finish="abort"), []))
    assert raw["usage"]["completion_tokens"] == 0
    assert wire.delta_from_json(raw) == delta(finish="abort")


@given(st.lists(st.tuples(st.sampled_from(["v1", "v2"]), st.lists(st.integers(0, 9), max_size=3)), max_size=12))
def test_coalescing_changes_neither_tokens_nor_versions(parts: list[tuple[str, list[int]]]) -> None:
    deltas = [delta(*tokens, version=version, top=True) for version, tokens in parts]
    merged = wire.coalesce(deltas)

    def tokens_of(some: list[Delta]) -> list[tuple[int, float, str, object]]:
        return [
            (token, logprob, d.version, top)
            for d in some
            for token, logprob, top in zip(d.token_ids, d.logprobs, d.top_logprobs or [None] * 9, strict=False)
        ]

    assert tokens_of(merged) == tokens_of(deltas)
    assert all(a.version != b.version for a, b in pairwise(merged))


def test_a_merged_delta_ends_like_its_last_part() -> None:
    merged = wire.merge([delta(1, top=True), delta(2, top=True), delta(finish="length")])
    assert merged == delta(1, 2, top=True, finish="length")


def test_spans_follow_the_versions_of_the_deltas() -> None:
    spans: list[VersionSpan] = []
    for part in (delta(1), delta(2, 3), delta(version="v9"), delta(4, version="v1"), delta(5, version="v1")):
        wire.extend_spans(spans, part)
    assert spans == [VersionSpan("v0", 0, 3), VersionSpan("v1", 3, 5)]


def test_a_score_request_survives_the_wire() -> None:
    raw = score_body()
    assert wire.score_request_from_json(raw) == SCORE
    assert raw == {
        "request_id": "judge-1",
        "sequences": [[1, 2, 3], [1, 2, 30000, 4]],
        "starts": [2, 1],
        "model": "v3",
        "temperature": 0.5,
        "top_logprobs": 2,
        "priority": -4,
        "cache_salt": "5a17",
    }


def test_what_a_score_request_leaves_out_is_the_default() -> None:
    raw = {"request_id": "r", "sequences": [[1, 2]], "starts": [1]}
    assert wire.score_request_from_json(raw) == ScoreRequest(request_id="r", sequences=((1, 2),), starts=(1,))
    assert wire.score_request_from_json(raw).priority == BACKGROUND


@pytest.mark.parametrize(
    ("raw", "field"),
    [
        ("text", "JSON object"),
        (score_body(request_id=None), "request_id"),
        (score_body(sequences=None), "sequences"),
        (score_body(sequences=[], starts=[]), "sequences"),
        (score_body(sequences=[[1, 2], 3]), "sequence 1"),
        (score_body(sequences=[[1, -2], [1, 2]]), "sequence 0"),
        (score_body(starts=[1]), "2 sequences came with 1 starts"),
        (score_body(starts=[1, 0]), "starts"),
        (score_body(starts=[3, 1]), "starts"),
        (score_body(starts="12"), "starts"),
        (score_body(temperature="hot"), "temperature"),
        (score_body(temperature=0), "temperature"),
        (score_body(temperature=float("nan")), "temperature"),
        (score_body(top_logprobs=21), "top_logprobs"),
        (score_body(top_logprobs=1.5), "top_logprobs"),
        (score_body(model=["v3"]), "model"),
        (score_body(priority="low"), "priority"),
    ],
)
def test_a_wrong_score_request_is_refused_and_the_field_named(raw: Any, field: str) -> None:
    with pytest.raises(EngineRefused, match=field) as refusal:
        wire.score_request_from_json(raw)
    assert refusal.value.status == 400


def test_hidden_requests_and_states_survive_the_wire() -> None:
    request = HiddenRequest(request_id="h", sequences=((1, 2), (3,)), layer=15)
    raw = wire.loads(wire.dumps(wire.hidden_request_to_json(request)))
    assert wire.hidden_request_from_json(raw) == request
    wrongs: tuple[dict[str, Json], ...] = ({"sequences": None}, {"sequences": [[]]}, {"layer": 0}, {"layer": "15"})
    for wrong in wrongs:
        with pytest.raises(EngineRefused, match=next(iter(wrong))):
            wire.hidden_request_from_json({**raw, **wrong})
    assert wire.hidden_from_json({"hidden": [[0.5, -1.25]]}) == (Hidden(values=(0.5, -1.25)),)


def test_scores_survive_the_wire() -> None:
    scores = (
        Scored(logprobs=(-0.1, -2.25)),
        Scored(logprobs=(-1e-17,), top_logprobs=((TokenLogprob(7, -0.5), TokenLogprob(3, -1.75)),)),
    )
    raw = over_the_wire({"scores": [wire.scored_to_json(scored) for scored in scores]})
    assert raw["scores"][1] == {"logprobs": [-1e-17], "top_logprobs": [[[7, -0.5], [3, -1.75]]]}
    assert wire.scores_from_json(raw) == scores


@pytest.mark.parametrize("value", [float("nan"), float("-inf")])
def test_a_score_that_json_cannot_write_is_an_error(value: float) -> None:
    with pytest.raises(EngineError, match="not finite"):
        wire.scored_to_json(Scored(logprobs=(-1.0, value)))


def test_a_publication_survives_the_wire() -> None:
    raw = over_the_wire(wire.publication_to_json(PUBLICATION))
    assert raw == {
        "version": "v3",
        "weights": {"uri": "file:/weights/v3", "sha256": "ab" * 32},
        "live": False,
        "known": False,
    }
    assert wire.publication_from_json(raw) == PUBLICATION
    del raw["live"]
    assert wire.publication_from_json(raw).live
    base = Publication(version="v0")
    assert wire.publication_from_json(over_the_wire(wire.publication_to_json(base))) == base


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"version": ""}, "version"),
        ({"version": 3}, "version"),
        ({"weights": "/weights/v3"}, "object"),
        ({"weights": {"uri": "/weights/v3", "sha256": ""}}, "is no URI"),
        ({"weights": {"uri": "file:/weights/v3", "sha256": 5}}, "sha256"),
        ({"live": "yes"}, "live"),
    ],
)
def test_a_wrong_publication_is_refused_and_the_field_named(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(EngineRefused, match=field):
        wire.publication_from_json(wire.publication_to_json(PUBLICATION) | changes)


def test_what_is_retired_is_named() -> None:
    assert wire.version_from_json({"version": "v3"}) == "v3"
    for raw in ({}, {"version": ""}, {"version": ["v3"]}, "v3"):
        with pytest.raises(EngineRefused):
            wire.version_from_json(raw)


def test_the_state_survives_the_wire() -> None:
    state = EngineState(
        model="m",
        versions=("v0", "v1"),
        live_version="v1",
        context_window=64,
        vocab_size=300,
        device="cpu",
        dtype="float32",
    )
    assert wire.state_from_json(over_the_wire(wire.state_to_json(state))) == state


def test_bytes_are_plain_json() -> None:
    assert json.loads(wire.dumps({"a": [1, 2.5, "é"]})) == {"a": [1, 2.5, "é"]}


def test_the_salts_to_forget_are_named() -> None:
    assert wire.salts_from_json(wire.salts_to_json({"a", "b"})) == {"a", "b"}


@pytest.mark.parametrize("raw", [[], {}, {"salts": "ab"}, {"salts": [""]}, {"salts": [1]}])
def test_salts_that_are_none_are_refused(raw: Json) -> None:
    with pytest.raises(EngineRefused, match="JSON object|salts must be"):
        wire.salts_from_json(raw)
