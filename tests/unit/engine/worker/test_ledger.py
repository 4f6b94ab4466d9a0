"""What a new worker gets back, with the scripted engine as the worker."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

import pytest

from openclaw_rl.engine.scripted import ScriptedEngine, ScriptedOptions
from openclaw_rl.engine.worker.ledger import Ledger
from openclaw_rl.errors import EngineError, EngineLost, EngineRefused, EngineUnavailable
from openclaw_rl.types import Publication
from tests.unit.engine.prompts import BASE_AGAIN, saved


class Picky(ScriptedEngine):
    """Fails to load the versions that are named, with the error that is named; remembers what it was told."""

    def __init__(self, folder: Path, failures: dict[str, Exception] | None = None) -> None:
        super().__init__(folder, ScriptedOptions())
        self.failures = failures or {}
        self.told: list[tuple[str, bool]] = []

    async def publish(self, publication: Publication) -> None:
        self.told.append((publication.version, publication.live))
        if publication.version in self.failures:
            raise self.failures[publication.version]
        await super().publish(publication)


@pytest.fixture(autouse=True)
def _log_warnings(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "openclaw_rl")


def ledger_of(*publications: Publication) -> Ledger:
    ledger = Ledger()
    for publication in publications:
        ledger.publish(publication)
    return ledger


async def replayed(ledger: Ledger, engine: ScriptedEngine) -> tuple[tuple[str, ...], str]:
    """The versions and the live one after a replay into a new worker."""
    await ledger.replay(engine)
    state = await engine.state()
    return state.versions, state.live_version


async def test_an_empty_ledger_says_nothing(tokenizer_folder: Path) -> None:
    engine = Picky(tokenizer_folder)
    assert await replayed(Ledger(), engine) == (("v0",), "v0")
    assert engine.told == []


async def test_everything_comes_back_in_order_and_the_live_one_last(
    tokenizer_folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ledger = ledger_of(saved(tmp_path, "v1"), saved(tmp_path, "v2"), saved(tmp_path, "v3", live=False))
    for _ in range(2):
        engine = Picky(tokenizer_folder)
        assert await replayed(ledger, engine) == (("v0", "v1", "v2", "v3"), "v2")
        assert engine.told == [("v1", False), ("v2", False), ("v3", False), ("v2", True)]
    assert not caplog.records


async def test_what_was_only_loaded_does_not_become_live(tokenizer_folder: Path, tmp_path: Path) -> None:
    ledger = ledger_of(saved(tmp_path, "v1", live=False))
    assert await replayed(ledger, Picky(tokenizer_folder)) == (("v0", "v1"), "v0")


async def test_publishing_again_makes_live_and_keeps_the_order(tokenizer_folder: Path, tmp_path: Path) -> None:
    v1, v2 = saved(tmp_path, "v1"), saved(tmp_path, "v2")
    ledger = ledger_of(v1, v2, v1)
    assert await replayed(ledger, Picky(tokenizer_folder)) == (("v0", "v1", "v2"), "v1")
    ledger.publish(saved(tmp_path, "v2", live=False))
    assert await replayed(ledger, Picky(tokenizer_folder)) == (("v0", "v1", "v2"), "v1")


async def test_the_base_can_be_live_again(tokenizer_folder: Path, tmp_path: Path) -> None:
    ledger = ledger_of(saved(tmp_path, "v1"), BASE_AGAIN)
    assert await replayed(ledger, Picky(tokenizer_folder)) == (("v0", "v1"), "v0")


async def test_what_was_retired_stays_away(tokenizer_folder: Path, tmp_path: Path) -> None:
    ledger = ledger_of(saved(tmp_path, "v1"), saved(tmp_path, "v2"))
    ledger.retire("v1")
    assert await replayed(ledger, Picky(tokenizer_folder)) == (("v0", "v2"), "v2")


async def test_a_version_that_cannot_be_loaded_again_is_dropped(
    tokenizer_folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ledger = ledger_of(saved(tmp_path, "v1"), saved(tmp_path, "v2"), saved(tmp_path, "v3"))
    (tmp_path / "v2" / "adapter_model.safetensors").write_text("other bytes")
    assert await replayed(ledger, Picky(tokenizer_folder)) == (("v0", "v1", "v3"), "v3")
    (record,) = caplog.records
    assert (record.levelname, "v2" in record.getMessage(), "checksum" in record.getMessage()) == ("WARNING", True, True)
    engine = Picky(tokenizer_folder)
    await ledger.replay(engine)
    assert "v2" not in dict(engine.told), "it is not tried again"


async def test_the_live_version_that_is_lost_gives_way_to_the_one_before(
    tokenizer_folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    live = [saved(tmp_path, f"v{number}") for number in (1, 2, 3)]
    ledger = ledger_of(*live, saved(tmp_path, "v4", live=False), saved(tmp_path, "v5"))
    for lost in ("v3", "v5"):
        shutil.rmtree(tmp_path / lost)
        (tmp_path / lost).mkdir()
    # v4 was never live: it must not become so only because it is the newest that is left.
    assert await replayed(ledger, Picky(tokenizer_folder)) == (("v0", "v1", "v2", "v4"), "v2")
    errors = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert errors == ["version v5 was live and is lost; v2 takes its place"]


async def test_when_all_are_lost_the_base_is_live(
    tokenizer_folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ledger = ledger_of(saved(tmp_path, "v1"), saved(tmp_path, "v2"))
    failures: dict[str, Exception] = {label: EngineRefused("the folder is gone") for label in ("v1", "v2")}
    assert await replayed(ledger, Picky(tokenizer_folder, failures)) == (("v0",), "v0")
    assert "version v2 was live and is lost; v0 takes its place" in caplog.messages


@pytest.mark.parametrize("failure", [EngineError("a defect"), EngineUnavailable("too busy")], ids=type)
async def test_a_version_that_was_not_refused_is_left_for_the_next_worker(
    tokenizer_folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, failure: EngineError
) -> None:
    ledger = ledger_of(*(saved(tmp_path, label) for label in ("v1", "v2", "v3")))
    for _ in range(4):  # more often than deaths are borne
        engine = Picky(tokenizer_folder, {"v3": failure})
        assert await replayed(ledger, engine) == (("v0", "v1", "v2"), "v2")
        assert engine.told == [("v1", False), ("v2", False), ("v3", False), ("v2", True)]
    assert "version v3 is live and not there; the one before it stands in" in caplog.messages
    assert await replayed(ledger, Picky(tokenizer_folder)) == (("v0", "v1", "v2", "v3"), "v3")


async def test_a_live_version_that_loads_but_does_not_go_live_gives_way_for_once(
    tokenizer_folder: Path, tmp_path: Path
) -> None:
    class Stubborn(Picky):
        async def publish(self, publication: Publication) -> None:
            if (publication.version, publication.live) == ("v2", True):
                raise EngineError("a defect")
            await super().publish(publication)

    ledger = ledger_of(saved(tmp_path, "v1"), saved(tmp_path, "v2"))
    assert await replayed(ledger, Stubborn(tokenizer_folder)) == (("v0", "v1", "v2"), "v1")
    assert await replayed(ledger, Picky(tokenizer_folder)) == (("v0", "v1", "v2"), "v2")


async def test_a_death_drops_nothing(tokenizer_folder: Path, tmp_path: Path) -> None:
    ledger = ledger_of(saved(tmp_path, "v1"), saved(tmp_path, "v2"))
    for _ in range(4):
        for _ in range(2):
            with pytest.raises(EngineLost):
                await ledger.replay(Picky(tokenizer_folder, {"v2": EngineLost("died")}))
        assert await replayed(ledger, Picky(tokenizer_folder)) == (("v0", "v1", "v2"), "v2")


async def test_a_version_that_kills_every_worker_is_dropped(
    tokenizer_folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ledger = ledger_of(saved(tmp_path, "v1"), saved(tmp_path, "v2"))
    deadly: dict[str, Exception] = {"v2": EngineLost("died")}
    for _ in range(3):
        with pytest.raises(EngineLost):
            await ledger.replay(Picky(tokenizer_folder, deadly))
    assert await replayed(ledger, Picky(tokenizer_folder, deadly)) == (("v0", "v1"), "v1")
    assert "version v2 was live and is lost; v1 takes its place" in caplog.messages
