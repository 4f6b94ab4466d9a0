"""A candidate that lost its language is told from one that learned something; and live means live."""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from openclaw_rl.errors import EngineLost, EngineRefused
from openclaw_rl.release.gate import Gate, GateLimits, distinct_pairs
from openclaw_rl.release.live import LiveVersions
from openclaw_rl.release.releaser import NoSuchVersion, Releaser
from openclaw_rl.types import (
    Delta,
    EngineState,
    GenerateRequest,
    Json,
    Publication,
    Scored,
    ScoreRequest,
    Version,
    VersionState,
)

PROBES = [(1, 2), (3, 4, 5)]
VERSION = Version(line="local", number=1, parent=0, state="candidate", created_at=0.0, path="/v1", sha256="ab")


class FakeEngine:
    """Answers with fixed tokens and fixed log-probs for each version."""

    def __init__(self, answers: dict[str, tuple[int, ...]], logprobs: dict[str, float]) -> None:
        self.answers, self.logprobs = answers, logprobs
        self.published: list[Publication] = []
        self.retired: list[str] = []
        self.is_lost = False
        self.refuses = False

    async def generate(self, request: GenerateRequest) -> AsyncGenerator[Delta, None]:
        if self.is_lost:
            raise EngineLost("gone")
        assert request.priority == 1
        tokens = self.answers[str(request.version)]
        yield Delta(token_ids=tokens, logprobs=(0.0,) * len(tokens), version="v", finish_reason="stop")

    async def score(self, request: ScoreRequest) -> tuple[Scored, ...]:
        value = self.logprobs[str(request.version)]
        sizes = [len(ids) - start for ids, start in zip(request.sequences, request.starts, strict=True)]
        return tuple(Scored(logprobs=(value,) * size) for size in sizes)

    async def publish(self, publication: Publication) -> None:
        if self.refuses:
            raise EngineRefused("the checksum is another one")
        self.published.append(publication)

    async def retire(self, version: str) -> None:
        self.retired.append(version)

    async def state(self) -> EngineState:
        raise NotImplementedError

    async def close(self) -> None: ...


class Rows:
    """Versions in memory."""

    def __init__(self, *versions: Version) -> None:
        self.rows = {version.number: version for version in versions}

    async def versions(self, line: str | None = None) -> Sequence[Version]:
        return list(self.rows.values())

    async def set_version_state(
        self, line: str, number: int, state: VersionState, *, reason: str = "", gate: Json = None
    ) -> None:
        self.rows[number] = replace(self.rows[number], state=state, reason=reason, gate=gate)

    async def forget_files(self, line: str, numbers: Sequence[int]) -> None:
        raise AssertionError("all of these are new")


def engine(*, drift: float = 0.1, says: tuple[int, ...] = (7, 8, 9, 10)) -> FakeEngine:
    return FakeEngine({"v0": (5, 6, 7), "v1": says, "v2": says}, {"v0": -1.0, "v1": -1.0 - drift, "v2": -1.0})


def gate(over: FakeEngine) -> Gate:
    return Gate(over, PROBES, (2,), GateLimits(max_kl=0.5, min_distinct=0.4))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, ""),
        ({"drift": 0.6}, "nats a token away"),
        ({"drift": math.nan}, "not finite"),
        ({"says": (7,) * 9}, "token pairs"),
    ],
)
async def test_what_stands_against_a_candidate(changes: dict[str, Any], reason: str) -> None:
    over = engine(**changes)
    report = await gate(over).measure("v1", "v0")
    assert reason in report.reason
    assert bool(reason) == bool(report.reason)
    if not changes:
        assert report.kl == pytest.approx(0.1)
        assert (report.distinct, report.mean_tokens) == (1.0, 4.0)


def test_distinct_pairs() -> None:
    assert distinct_pairs((1, 2, 1, 2, 1)) == 0.5
    assert distinct_pairs((1,)) == distinct_pairs(()) == 1.0


async def test_a_good_candidate_becomes_live_and_its_parent_leaves() -> None:
    over, live, rows = engine(), LiveVersions(), Rows(VERSION)
    live.restored()
    releaser = Releaser(rows, over, gate(over), live, save_every=1)
    await releaser.release(VERSION)
    assert over.published == [Publication(version="v1", path="/v1", sha256="ab", live=False)]
    assert (rows.rows[1].state, await live.label("local"), over.retired) == ("live", "v1", [])
    second = replace(VERSION, number=2, parent=1, path="/v2")
    rows.rows[2] = second
    await releaser.release(second)
    assert (await live.label("local"), over.retired) == ("v2", ["v1"])
    assert await live.label("somebody else") is None


async def test_a_bad_candidate_is_kept_from_people() -> None:
    over, live, rows = engine(says=(7,) * 9), LiveVersions(), Rows(VERSION)
    live.restored()
    await Releaser(rows, over, gate(over), live, save_every=1).release(VERSION)
    assert rows.rows[1].state == "rejected"
    assert "token pairs" in rows.rows[1].reason
    assert (await live.label("local"), over.retired) == (None, ["v1"])


async def test_an_engine_that_dies_leaves_the_candidate_for_the_next_start() -> None:
    over, live, rows = engine(), LiveVersions(), Rows(VERSION)
    over.is_lost = True
    await Releaser(rows, over, gate(over), live, save_every=1).release(VERSION)
    assert rows.rows[1].state == "candidate"
    over.is_lost = False
    await Releaser(rows, over, gate(over), live, save_every=1).restore()
    assert (rows.rows[1].state, await live.label("local")) == ("live", "v1")


async def test_a_version_whose_file_is_gone_does_not_keep_the_base_model_from_answering() -> None:
    over, live, rows = engine(), LiveVersions(), Rows(replace(VERSION, state="live"))
    over.refuses = True
    await Releaser(rows, over, gate(over), live, save_every=1).restore()
    assert await live.label("local") is None
    assert (rows.rows[1].state, rows.rows[1].reason) == ("rejected", "the checksum is another one")


async def test_going_back() -> None:
    over, live = engine(), LiveVersions()
    rows = Rows(replace(VERSION, state="retired"), replace(VERSION, number=2, parent=1, state="live"))
    releaser = Releaser(rows, over, gate(over), live, save_every=1)
    await releaser.restore()
    assert await live.label("local") == "v2"
    assert await releaser.roll_back("local", 1) == "v1"
    assert (await live.label("local"), rows.rows[1].state, rows.rows[2].state) == ("v1", "live", "rolled_back")
    assert await releaser.roll_back("local", 0) == "v0"
    assert (await live.label("local"), rows.rows[1].state) == (None, "rolled_back")
    with pytest.raises(NoSuchVersion, match="there are 0, 1, 2"):
        await releaser.roll_back("local", 7)
