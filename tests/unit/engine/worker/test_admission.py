from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from openclaw_rl.engine.worker.admission import (
    COLDEST,
    LARGEST_BIAS,
    LARGEST_PENALTY,
    admit,
    admit_publication,
    admit_retirement,
    admit_score,
    verify,
)
from openclaw_rl.errors import EngineRefused
from openclaw_rl.gateway.answer.pinning import pinned_version
from openclaw_rl.model.folder import folder_sha256
from openclaw_rl.types import EngineState, Publication, ScoreRequest, WeightsRef, version_label
from tests.factories.weights import folder_ref
from tests.unit.engine.prompts import ask

STATE = EngineState(
    model="m",
    versions=("v0", "v1", "v2"),
    live_version="v1",
    context_window=10,
    vocab_size=100,
    device="none",
    dtype="none",
)
SHA = "ab" * 32


def scoring(*sequences: tuple[int, ...], version: str | None = None) -> ScoreRequest:
    return ScoreRequest(request_id="s", sequences=sequences, starts=(1,) * len(sequences), version=version)


@pytest.mark.parametrize(
    ("num_prompt", "max_tokens", "version", "expected"),
    [
        (4, 3, None, ("v1", 3)),
        (4, 3, "v0", ("v0", 3)),
        (4, 6, None, ("v1", 6)),
        (4, 7, None, ("v1", 6)),
        (9, 100, None, ("v1", 1)),
    ],
)
def test_an_answer_gets_the_room_that_is_left(
    num_prompt: int, max_tokens: int, version: str | None, expected: tuple[str, int]
) -> None:
    assert admit(ask(range(num_prompt), version=version, max_tokens=max_tokens), STATE) == expected


@pytest.mark.parametrize(
    ("num_prompt", "version", "status", "code"),
    [
        (4, "v7", 404, "version_not_found"),
        (0, None, 400, "empty_prompt"),
        (10, None, 400, "context_length_exceeded"),
        (11, "v0", 400, "context_length_exceeded"),
    ],
)
def test_what_cannot_be_served_is_refused(num_prompt: int, version: str | None, status: int, code: str) -> None:
    with pytest.raises(EngineRefused) as refusal:
        admit(ask(range(num_prompt), version=version), STATE)
    assert (refusal.value.status, refusal.value.code) == (status, code)


@pytest.mark.parametrize(
    ("token_ids", "bias", "name"),
    [
        ([99, 100], {}, "token_ids: token id 100"),
        ([100, 99], {}, "token_ids: token id 100"),
        ([1, -1, 5], {}, "token_ids: token id -1"),
        ([1], {100: 1.0, 3: 1.0}, "logit_bias: token id 100"),
        ([1], {-1: 1.0}, "logit_bias: token id -1"),
    ],
)
def test_ids_beyond_the_vocabulary_are_refused(token_ids: list[int], bias: dict[int, float], name: str) -> None:
    with pytest.raises(EngineRefused, match=name) as refusal:
        admit(ask(token_ids, logit_bias=bias), STATE)
    assert (refusal.value.status, refusal.value.code) == (400, "token_out_of_vocabulary")


def test_the_whole_vocabulary_is_admitted() -> None:
    assert admit(ask([0, 99], logit_bias={0: 1.0, 99: -1.0}), STATE)[0] == "v1"


@pytest.mark.parametrize(
    ("sampling", "part"),
    [
        ({"temperature": 1e-30}, "temperature 1e-30 is too small.*send 0"),
        ({"temperature": 5e-324}, "temperature"),
        ({"logit_bias": {1: 1.0, 2: 1e30}}, r"logit_bias has 1e\+30"),
        ({"logit_bias": {1: -2 * LARGEST_BIAS, 2: 1.0}}, "logit_bias"),
        ({"repetition_penalty": 2 * LARGEST_PENALTY}, r"repetition_penalty 2e\+06"),
        ({"repetition_penalty": 0.5 / LARGEST_PENALTY}, "repetition_penalty 5e-07"),
    ],
)
def test_numbers_that_float32_cannot_work_with_are_refused(sampling: dict[str, Any], part: str) -> None:
    with pytest.raises(EngineRefused, match=part) as refusal:
        admit(ask([1], **sampling), STATE)
    assert (refusal.value.status, refusal.value.code) == (400, "sampling_out_of_range")


@pytest.mark.parametrize("temperature", [0.0, COLDEST, 1e-8, 2.0])
@pytest.mark.parametrize("penalty", [1 / LARGEST_PENALTY, 1.0, LARGEST_PENALTY])
def test_everything_up_to_the_limits_is_admitted(temperature: float, penalty: float) -> None:
    bias = {0: LARGEST_BIAS, 1: -LARGEST_BIAS}
    request = ask([1], temperature=temperature, repetition_penalty=penalty, logit_bias=bias)
    assert admit(request, STATE)[0] == "v1"


def test_a_score_by_a_temperature_near_zero_is_refused() -> None:
    assert admit_score(replace(scoring((1, 2)), temperature=COLDEST), STATE) == "v1"
    with pytest.raises(EngineRefused, match="temperature 1e-30"):
        admit_score(replace(scoring((1, 2)), temperature=1e-30), STATE)


def test_a_sequence_may_fill_the_window() -> None:
    assert admit_score(scoring((5,) * 10, (1, 99)), STATE) == "v1"
    assert admit_score(scoring((0, 1), version="v2"), STATE) == "v2"


@pytest.mark.parametrize(
    ("request_", "status", "code", "part"),
    [
        (scoring((1, 2), version="v9"), 404, "version_not_found", "v9"),
        (scoring((1, 2), (5,) * 11), 400, "context_length_exceeded", "sequence 1 has 11"),
        (scoring((1, 2), (3, 100)), 400, "token_out_of_vocabulary", "sequence 1"),
        (scoring((-1, 2)), 400, "token_out_of_vocabulary", "sequence 0"),
    ],
)
def test_what_cannot_be_scored_is_refused(request_: ScoreRequest, status: int, code: str, part: str) -> None:
    with pytest.raises(EngineRefused, match=part) as refusal:
        admit_score(request_, STATE)
    assert (refusal.value.status, refusal.value.code) == (status, code)


def publication(version: str, sha256: str = SHA, path: str = "/weights") -> Publication:
    return Publication(version=version, weights=folder_ref(path, sha256))


def test_a_version_is_loaded_once() -> None:
    assert admit_publication(publication("v3"), {"v0": "", "v1": SHA})
    assert not admit_publication(publication("v1"), {"v0": "", "v1": SHA})
    assert not admit_publication(publication("v0", ""), {"v0": "", "v1": SHA})


@pytest.mark.parametrize(("version", "sha256"), [("v1", "cd" * 32), ("v1", ""), ("v0", SHA)])
def test_a_label_keeps_its_bytes(version: str, sha256: str) -> None:
    with pytest.raises(EngineRefused, match="same bytes") as refusal:
        admit_publication(publication(version, sha256), {"v0": "", "v1": SHA})
    assert (refusal.value.status, refusal.value.code) == (409, "version_conflict")


@pytest.mark.parametrize("line", ["local", "ann", "a.b-c_d", "3", "x" * 64])
def test_every_label_can_be_asked_for(line: str) -> None:
    """What is published can be pinned as the gateway reads it, with the v and without."""
    label = version_label(line, 12)
    assert admit_publication(publication(label), {})
    assert pinned_version(f"org/name@{label}", line, (label,)) == label
    assert pinned_version(f"org/name@{label[1:]}", line, (label,)) == label


@pytest.mark.parametrize("label", ["", "v", "3", "alice/v3", "v3@x", "v3\n", "v 3", "V3", "vé", "v" + "9" * 64])
def test_a_label_that_could_not_be_asked_for_is_refused(label: str) -> None:
    with pytest.raises(EngineRefused) as refusal:
        admit_publication(publication(label), {})
    assert (refusal.value.status, refusal.value.code) == (400, "invalid_version")


def test_a_folder_is_what_was_published(tmp_path: Path) -> None:
    (tmp_path / "adapter_model.safetensors").write_bytes(b"weights")
    sha256 = folder_sha256(tmp_path)
    verify(publication("v3", sha256, str(tmp_path)))
    for wrong in ("", SHA, sha256.upper()):
        with pytest.raises(EngineRefused, match=f"has the checksum {sha256}") as refusal:
            verify(publication("v3", wrong, str(tmp_path)))
        assert (refusal.value.status, refusal.value.code) == (400, "checksum_mismatch")


@pytest.mark.parametrize("weights", [None, WeightsRef(uri="tinker://run/7", sha256=SHA)])
def test_weights_that_are_elsewhere_are_refused_with_the_remedy(weights: WeightsRef | None) -> None:
    with pytest.raises(EngineRefused, match=r"training\.backend=local") as refusal:
        verify(Publication(version="v3", weights=weights))
    assert refusal.value.code == "version_unreadable"


@pytest.mark.parametrize("name", ["nowhere", "empty"])
def test_a_folder_that_cannot_be_read_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(EngineRefused, match=name) as refusal:
        verify(publication("v3", SHA, str(tmp_path / name)))
    assert (refusal.value.status, refusal.value.code) == (400, "version_unreadable")


@pytest.mark.parametrize(
    ("changes", "version", "status", "code"),
    [
        ({}, "v1", 409, "version_is_live"),
        ({}, "v0", 409, "version_is_base"),
        ({"live_version": "v0"}, "v0", 409, "version_is_base"),
        ({}, "v9", 404, "version_not_found"),
    ],
)
def test_what_is_needed_is_not_retired(changes: dict[str, Any], version: str, status: int, code: str) -> None:
    with pytest.raises(EngineRefused) as refusal:
        admit_retirement(version, replace(STATE, **changes))
    assert (refusal.value.status, refusal.value.code) == (status, code)


def test_what_is_not_needed_may_go() -> None:
    admit_retirement("v2", STATE)
    admit_retirement("v1", replace(STATE, live_version="v2"))
