"""Engine and trainer are asked about the same tokens, and about the bytes they have."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from openclaw_rl.errors import EngineLost
from openclaw_rl.protocols import Scorer
from openclaw_rl.release.gate.probes import Prober, frozen_probes
from openclaw_rl.release.gate.prove import Proof
from openclaw_rl.release.gate.proving import Proving
from openclaw_rl.types import (
    EngineHealth,
    EngineState,
    Scored,
    ScoreOrder,
    ScoreReport,
    ScoreRequest,
    Version,
)
from tests.factories.weights import folder_ref
from tests.fakes.release import VERSION, WordEngine, WordRenderer
from tests.fakes.trainers import StubTrainer


def weight(version: str, text: str) -> float:
    """What a version gives to a passage, the same for all of its tokens; the base has its own, v1 another change."""
    drawn = random.Random(text)
    base = -drawn.random()
    return base if version == "v0" else base + drawn.gauss(0.0, 0.1)


class WordTrainer(StubTrainer):
    """Reads the same words as the engine; `files` maps a folder to the version it holds."""

    def __init__(self, renderer: WordRenderer, **told: Any) -> None:
        super().__init__(Path("/nowhere"))
        self.renderer, self.told = renderer, {"sha256": "ab", **told}
        self.files: dict[str | None, str] = {None: "v0", "/v1": "v1"}
        self.num_tokens = 0
        self.weight = weight

    async def score(self, order: ScoreOrder) -> ScoreReport:
        assert order.settings == {"use_lora": True}
        asked = list(zip(order.sequences, order.starts, strict=True))
        self.num_tokens = sum(len(ids) - start for ids, start in asked)
        folders = (None if weights is None else str(weights.folder) for weights in (order.parent, order.candidate))
        parent, candidate = (
            tuple(
                (self.weight(self.files[folder], self.renderer.decode(ids)),) * (len(ids) - start)
                for ids, start in asked
            )
            for folder in folders
        )
        return ScoreReport(parent=parent, candidate=candidate, **self.told)


class Rig:
    def __init__(self, *, says: str = "a b c d e f g h i j k l m n o p q r s t", **told: Any) -> None:
        renderer = WordRenderer()
        self.trainer = WordTrainer(renderer, **told)
        self.engine = WordEngine(renderer, {"v0": lambda q: f"{q} {says}", "v1": lambda q: says}, logprob=weight)
        self.renderer = renderer

    async def prove(self, candidate: Version = VERSION, parent: Version | None = None, **settings: Any) -> Proof:
        prober = Prober(self.engine, self.renderer, frozen_probes(self.renderer), max_tokens=96)  # type: ignore[arg-type]
        proving = Proving(
            self.engine,
            prober,
            self.trainer,
            settings={"use_lora": True},
            **{"min_tokens": 256, "min_correlation": 0.99, **settings},
        )
        return await proving.prove(candidate, parent)


async def test_both_agree() -> None:
    rig = Rig()
    proof = await rig.prove()
    assert (proof.reason, proof.checksum) == ("", "verified")
    assert proof.correlation == pytest.approx(1.0)
    assert 256 <= proof.num_tokens == rig.trainer.num_tokens < 300, "no more than it takes"
    assert proof.change > 0.05


async def test_an_engine_that_ignores_the_adapter_is_found_out() -> None:
    rig = Rig()
    rig.engine.logprob = lambda version, text: weight("v0", text)
    assert (await rig.prove()).reason.startswith("the engine does not serve what was trained")


async def test_a_candidate_that_changes_nothing_is_found_out() -> None:
    rig = Rig()
    rig.engine.logprob = lambda version, text: weight("v0", text)
    rig.trainer.files["/v1"] = "v0"
    assert (await rig.prove()).reason.startswith("no effect")


async def test_an_engine_that_loaded_other_bytes_is_found_out() -> None:
    rig = Rig()
    rig.engine.checksums = {"v1": "cd" * 32}
    assert (await rig.prove()).reason == "the engine loaded cdcdcdcdcdcdcdcd for it, and ab was trained"
    rig.engine.checksums = {}
    assert (await rig.prove()).reason.startswith("the engine loaded nothing")


async def test_an_engine_without_checksums_is_proved_by_correlation_alone() -> None:
    rig = Rig()
    rig.engine.checksums = {}
    proof = await rig.prove(reports_checksum=False)
    assert (proof.verdict, proof.reason, proof.checksum) == ("proved", "", "not reported by this engine")
    assert proof.to_json()["checksum"] == "not reported by this engine", "the version's report says so"
    rig.engine.logprob = lambda version, text: weight(version, text if version == "v0" else text[::-1])
    proof = await rig.prove(reports_checksum=False)
    assert (proof.verdict, proof.checksum) == ("other weights", "not reported by this engine"), (
        "another version's change"
    )
    assert (await Rig(sha256="ef").prove(reports_checksum=False)).checksum == "differs", (
        "the trainer's files still count"
    )


class Group:
    """Three engines that answer as one; one may serve something else, or be dead."""

    health: Sequence[EngineHealth] = ()

    def __init__(self, engine: WordEngine, *, odd: WordEngine | None = None, dead: str = "") -> None:
        self.engines = {"engine 1": engine, "engine 2": odd or engine, "engine 3": engine}
        self.dead = dead

    def scorers(self, versions: Collection[str]) -> Mapping[str, Scorer]:
        assert set(versions) == {"v0", "v1"}
        return {name: Dead() if name == self.dead else engine for name, engine in self.engines.items()}


class Dead:
    async def score(self, request: ScoreRequest) -> tuple[Scored, ...]:
        raise EngineLost("it died")

    async def state(self) -> EngineState:
        raise EngineLost("it died")


async def test_each_of_several_engines_is_asked() -> None:
    rig = Rig()
    proof = await rig.prove(group=Group(rig.engine))
    assert (proof.verdict, proof.reason) == ("proved", "")
    assert sorted(rig.engine.scored) == ["v0"] * 3 + ["v1"] * 3
    asleep = replace(rig.engine, logprob=lambda version, text: weight("v0", text))
    proof = await rig.prove(group=Group(rig.engine, odd=asleep))
    assert proof.reason.startswith("engine 2 does not serve what was trained")
    other = replace(rig.engine, checksums={"v1": "cd" * 32})
    proof = await rig.prove(group=Group(rig.engine, odd=other))
    assert proof.reason == "engine 2 loaded cdcdcdcdcdcdcdcd for it, and ab was trained"


async def test_an_engine_that_dies_over_the_proof_is_left_out_of_it() -> None:
    rig = Rig()
    assert (await rig.prove(group=Group(rig.engine, dead="engine 3"))).verdict == "proved"
    group = Group(rig.engine)
    group.engines = {"engine 1": rig.engine}
    group.dead = "engine 1"
    with pytest.raises(EngineLost):
        await rig.prove(group=group)
    group.engines = {}
    with pytest.raises(EngineLost, match="no engine answers with v1"):
        await rig.prove(group=group)


async def test_files_that_changed_since_are_found_out() -> None:
    assert (await Rig(sha256="ef").prove()).reason == "its files hash to ef now, and to ab when they were made"


async def test_where_answers_are_short_the_prompts_count_too() -> None:
    rig = Rig(says="")
    rig.engine.policies["v0"] = lambda q: "Yes."
    with pytest.raises(ValueError, match="256 tokens are needed"):
        await rig.prove()  # not even those are enough here
    rig.engine.policies["v0"] = lambda q: "Yes. " + "so " * 7
    assert (await rig.prove()).num_tokens >= 256


async def test_how_much_must_agree_is_a_setting() -> None:
    rig = Rig()
    rig.engine.logprob = lambda version, text: (
        weight(version, text) + (random.Random(text[::-1]).gauss(0.0, 0.03) if version == "v1" else 0.0)
    )
    assert (await rig.prove()).reason.startswith("the engine does not serve what was trained")
    assert (await rig.prove(min_correlation=0.85)).reason == ""


async def test_the_parent_is_what_answers() -> None:
    rig = Rig()
    rig.engine.policies["v1"] = rig.engine.policies["v0"]
    rig.engine.policies["v2"] = rig.engine.policies["v0"]
    rig.engine.logprob = rig.trainer.weight = lambda version, text: weight("v0", text) - len(text) * int(version[1:])
    rig.trainer.files["/v2"] = "v2"
    second = replace(VERSION, number=2, parent=1, weights=folder_ref("/v2", "ab"))
    assert (await rig.prove(second, VERSION)).reason == ""
    rig.trainer.files["/v1"] = "v2"
    assert (await rig.prove(second, VERSION)).reason.startswith("no effect"), "as the trainer sees it"
