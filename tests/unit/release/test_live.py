"""A candidate becomes live, is rejected, or waits; and live means live."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import pytest

from openclaw_rl.errors import EngineError, TrainerLost
from openclaw_rl.protocols import LearningStore
from openclaw_rl.release.answering import NoSuchVersion
from openclaw_rl.release.gate.prove import Proof
from openclaw_rl.release.gate.report import GateReport
from openclaw_rl.release.live import LiveVersions
from openclaw_rl.release.releaser import Releaser
from openclaw_rl.types import Publication, Version
from tests.factories.weights import folder_ref
from tests.fakes.release import NOWHERE, VERSION, FakeEngine, OpenDoor, Rows

SECOND = replace(VERSION, number=2, parent=1, weights=folder_ref("/v2", "ab"))
HEARD = replace(VERSION, state="retired", gate={"live_at": 0.0})


class Rig:
    def __init__(self, *versions: Version, door: OpenDoor | None = None, proves: bool = True) -> None:
        self.rows, self.engine, self.live = Rows(*versions), FakeEngine(), LiveVersions()
        self.live.expect(())
        self.door = door or OpenDoor()
        proving = self.door if proves else None
        self.releaser = Releaser(
            cast("LearningStore", self.rows),
            self.engine,
            self.door,
            self.live,
            proving=proving,
            keeper=NOWHERE,
            save_every=1,
        )

    def state(self, number: int) -> tuple[str, str]:
        return self.rows.rows[number].state, self.rows.rows[number].reason


async def test_a_good_candidate_becomes_live_and_its_parent_stays_loaded_until_the_next_one_comes() -> None:
    rig = Rig(VERSION)
    await rig.releaser.release(VERSION)
    assert rig.engine.published == [Publication(version="v1", weights=folder_ref("/v1", "ab"), live=False)]
    assert (rig.state(1), await rig.live.label("local"), rig.engine.retired) == (("live", ""), "v1", [])
    rig.rows.rows[2] = SECOND
    await rig.releaser.release(SECOND)
    assert (await rig.live.label("local"), rig.engine.retired) == ("v2", []), "who has chosen v1 finds it"
    rig.rows.rows[3] = replace(VERSION, number=3, parent=2, weights=folder_ref("/v3", "ab"))
    await rig.releaser.release(rig.rows.rows[3])
    assert (await rig.live.label("local"), rig.engine.retired) == ("v3", ["v1"])
    assert await rig.live.label("somebody else") is None
    assert rig.door.compared == [("v1", "v0"), ("v2", "v1"), ("v3", "v2")]


async def test_the_report_and_the_proof_are_on_the_row() -> None:
    rig = Rig(VERSION)
    await rig.releaser.release(VERSION)
    gate = rig.rows.rows[1].gate
    assert (gate["parent"], gate["proof"]["correlation"], gate["reason"]) == ("v0", 1.0, "")
    assert gate["live_at"] > 0


@pytest.mark.parametrize(
    ("door", "reason"),
    [(OpenDoor(mad=[1]), "it is mad"), (OpenDoor(unproved=[1]), "it is served otherwise")],
    ids=["gate", "proof"],
)
async def test_a_bad_candidate_is_kept_from_people(door: OpenDoor, reason: str) -> None:
    rig = Rig(VERSION, door=door)
    await rig.releaser.restore()
    assert (rig.state(1), rig.rows.rows[1].gate["parent"]) == (("rejected", reason), "v0")
    assert (await rig.live.label("local"), rig.engine.retired) == (None, ["v1"])


async def test_an_engine_that_dies_leaves_the_candidate_for_the_next_start() -> None:
    rig = Rig(VERSION)
    rig.engine.is_lost = True
    await rig.releaser.release(VERSION)
    assert rig.state(1) == ("candidate", "")
    rig.engine.is_lost = False
    await rig.releaser.restore()
    assert (rig.state(1)[0], await rig.live.label("local")) == ("live", "v1")


class FailingDoor(OpenDoor):
    def __init__(self, at: str, error: Exception) -> None:
        super().__init__()
        self.at, self.error = at, error

    async def quick(self, candidate: Version, parent: Version | None, confirmed: Version | None) -> GateReport:
        if self.at == "gate":
            raise self.error
        return await super().quick(candidate, parent, confirmed)

    async def prove(self, candidate: Version, parent: Version | None) -> Proof:
        raise self.error


async def test_a_trainer_that_cannot_prove_it_now_leaves_it_for_later() -> None:
    rig = Rig(VERSION, door=FailingDoor("proof", TrainerLost("it died")))
    await rig.releaser.release(VERSION)
    assert (rig.state(1), await rig.live.label("local")) == (("candidate", ""), None)


async def test_a_candidate_that_computes_no_probabilities_is_rejected() -> None:
    rig = Rig(VERSION, door=FailingDoor("gate", EngineError("the model computed NaN instead of probabilities")))
    await rig.releaser.release(VERSION)
    assert rig.state(1) == ("rejected", "the model computed NaN instead of probabilities")
    assert rig.engine.retired == ["v1"]


async def test_where_nobody_trains_candidates_wait_and_what_was_live_is_served() -> None:
    rig = Rig(replace(VERSION, state="live"), SECOND, proves=False)
    await rig.releaser.restore()
    await rig.releaser.settled()
    assert (rig.state(2)[0], await rig.live.label("local"), rig.door.compared) == ("candidate", "v1", [])


async def test_a_version_whose_file_is_gone_does_not_keep_the_base_model_from_answering() -> None:
    rig = Rig(replace(VERSION, state="live"))
    rig.engine.refuses = True
    await rig.releaser.restore()
    assert await rig.live.label("local") is None
    assert rig.state(1) == ("rejected", "the checksum is another one")


async def test_going_back() -> None:
    rig = Rig(replace(VERSION, state="retired", gate={"parent": "v0", "live_at": 0.0}), replace(SECOND, state="live"))
    await rig.releaser.restore()
    assert await rig.live.label("local") == "v2"
    assert await rig.releaser.roll_back("local", 1) == "v1"
    assert (await rig.live.label("local"), rig.state(1)[0], rig.state(2)) == (
        "v1",
        "live",
        ("rolled_back", "version 1 was put live"),
    )
    gate = rig.rows.rows[1].gate
    assert (gate["parent"], gate["live_at"] > 0) == ("v0", True), "it is watched from now on"
    assert await rig.releaser.roll_back("local", 0) == "v0"
    assert (await rig.live.label("local"), rig.state(1)[0]) == (None, "rolled_back")
    assert rig.engine.retired == ["v2"], "the one before last"
    with pytest.raises(NoSuchVersion, match="there are 0, 1, 2"):
        await rig.releaser.roll_back("local", 7)


async def test_going_back_from_a_version_that_answers_no_more_does_nothing() -> None:
    rig = Rig(HEARD, replace(SECOND, state="live", gate={"live_at": 0.0}))
    await rig.releaser.restore()
    assert await rig.releaser.roll_back("local", 0, reason="bad", instead_of=1) == "v2"
    assert rig.state(2)[0] == "live"
    assert await rig.releaser.roll_back("local", 1, reason="bad", instead_of=2) == "v1"
    assert rig.state(2) == ("rolled_back", "bad")


async def test_what_answers_again_is_not_unloaded_with_the_next_candidate() -> None:
    rig = Rig(HEARD, replace(SECOND, state="live", gate={"live_at": 0.0}))
    await rig.releaser.restore()
    await rig.releaser.roll_back("local", 1)
    await rig.releaser.roll_back("local", 2)
    rig.rows.rows[1] = replace(rig.rows.rows[1], state="rolled_back")
    rig.rows.rows[3] = replace(VERSION, number=3, parent=2, weights=folder_ref("/v3", "ab"))
    await rig.releaser.release(rig.rows.rows[3])
    assert (await rig.live.label("local"), rig.engine.retired) == ("v3", ["v1"])
