"""`undo`, `forget`, `export` and `import` where no server runs: the rows change, and the next start does the rest."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from openclaw_rl.cli.app import main
from openclaw_rl.cli.inspect.versions import show_versions
from openclaw_rl.cli.learn import undoing
from openclaw_rl.errors import ConfigError, NotFound, StoreBusy
from openclaw_rl.model.folder import folder_sha256
from openclaw_rl.store import SqliteStore, StoreReader
from openclaw_rl.types import Skip
from openclaw_rl.wiring.commands import make_commands
from tests.factories.lessons import settings
from tests.factories.planned import history, made
from tests.factories.stored import put_samples
from tests.unit.release.test_folders import CONFIG, adapter

CAPS = pytest.CaptureFixture[str]


@pytest.fixture
async def data_dir(tmp_path: Path) -> Path:
    async with await SqliteStore.open(tmp_path / "data") as store:
        await history(store)
    return tmp_path / "data"


def told(capsys: CAPS) -> Any:
    return json.loads(capsys.readouterr().out)


def run(capsys: CAPS, data_dir: Path, *words: str) -> tuple[int, str]:
    """Through the command line; exit status and what stood on standard error, in one line."""
    status = 0
    try:
        main([*words, "--data-dir", str(data_dir)])
    except SystemExit as end:
        status = int(end.code or 0)
    return status, " ".join(capsys.readouterr().err.split())


def test_undo_says_what_answers_and_what_is_learned_again(data_dir: Path, capsys: CAPS) -> None:
    status, said = run(capsys, data_dir, "undo", "b.0")
    assert status == 0
    assert said.startswith("b.0 teaches nothing any more. v1 answers from now on, instead of v3. 2 other samples wait")
    reader = StoreReader.open(data_dir)
    assert [one.state for one in reader.versions()] == ["live", "rolled_back", "rolled_back"]
    assert reader.turn("b", 0).skip == Skip.UNDONE  # type: ignore[union-attr]
    show_versions(settings(data_dir).store, user=None, as_json=False)
    assert "Rebuilding local: 2 samples of undone steps to learn from again." in capsys.readouterr().err
    status, said = run(capsys, data_dir, "undo", "b.0")
    assert said == "Nothing had been learned from b.0, and nothing will be. v1 answers as before."


@pytest.mark.parametrize("name", ["b", "b.7", "nowhere.0"])
def test_undo_wants_a_turn(data_dir: Path, name: str) -> None:
    with pytest.raises(NotFound):
        undoing.undo(settings(data_dir), name, as_json=False)


def test_forget_asks_first_and_then_says_what_is_gone(data_dir: Path, capsys: CAPS) -> None:
    asked: list[str] = []
    config = settings(data_dir)

    def refuse(what: str) -> None:
        asked.append(what)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        undoing.forget(config, "b", is_user=False, confirm=refuse, as_json=True)
    assert asked == ["session b"]
    reader = StoreReader.open(data_dir)
    assert reader.session("b") is not None
    undoing.forget(config, "b", is_user=False, confirm=lambda _: None, as_json=True)
    forgotten = told(capsys)
    assert (forgotten["answers"], forgotten["deleted"], forgotten["returned"]) == ("v1", ["v2", "v3"], 2)
    assert (reader.session("b"), len(reader.sessions())) == (None, 3)
    status, said = run(capsys, data_dir, "forget", "local", "--yes")
    assert (status, "all that local said (3 conversations)" in said) == (0, True)
    assert "Versions deleted with it: v1, v2, v3. v0 answers from now on, instead of v1." in said
    assert "Keys stay" in said
    assert reader.sessions() == []


def test_what_an_earlier_release_kept_of_the_chat_goes_too(data_dir: Path, capsys: CAPS) -> None:
    (data_dir / "chat_history").write_text("# 2026-01-01\n+question c.0\n")
    assert run(capsys, data_dir, "forget", "b", "--yes")[0] == 0
    assert not (data_dir / "chat_history").exists()


async def test_a_name_of_both_kinds_is_the_session_unless_said_otherwise(tmp_path: Path) -> None:
    async with await SqliteStore.open(tmp_path) as store:
        await put_samples(store, [made("local"), made("other")])
    reader = StoreReader.open(tmp_path)
    assert undoing._whose("local", reader, is_user=False) == {"session": "local"}
    assert undoing._whose("local", reader, is_user=True) == {"user": "local"}
    assert undoing._whose("oth", reader, is_user=False) == {"session": "other"}
    with pytest.raises(NotFound, match="there is something of local"):
        undoing._whose("ann", reader, is_user=True)
    with pytest.raises(ConfigError, match=r"`openclaw-rl undo other.0` takes it back"):
        undoing._whose("other.0", reader, is_user=False)


async def test_while_another_program_writes_nothing_is_changed(data_dir: Path, capsys: CAPS) -> None:
    async with await SqliteStore.open(data_dir):
        with pytest.raises(StoreBusy, match="already writes"):
            await asyncio.to_thread(undoing.undo, settings(data_dir), "b.0", as_json=True)


def test_a_version_goes_out_and_comes_in_as_a_candidate(data_dir: Path, tmp_path: Path, capsys: CAPS) -> None:
    folder = adapter(tmp_path / "given")
    undoing.take_in(settings(data_dir), folder, user="local", as_json=True)
    assert told(capsys) == {"version": "v4", "state": "candidate", "reason": ""}
    reader = StoreReader.open(data_dir)
    taken = reader.versions()[3]
    assert (taken.parent, taken.folder) == (3, data_dir / "versions" / "v4" / "weights")
    show_versions(settings(data_dir).store, user=None, as_json=False)
    shown = capsys.readouterr().out
    assert "import" in shown.splitlines()[1]
    status, said = run(capsys, data_dir, "export", "v4", str(tmp_path / "out"))
    assert (status, said.startswith("v4 is in ")) == (0, True)
    assert "came from elsewhere" in (tmp_path / "out" / "README.md").read_text()
    status, said = run(capsys, data_dir, "export", "v4", str(tmp_path / "out"))
    assert (status, "not empty; name a new folder" in said) == (1, True)
    status, said = run(capsys, data_dir, "import", str(tmp_path / "out"), "--user", "an n")
    assert (status, "is neither a user name" in said) == (2, True)
    status, said = run(capsys, data_dir, "import", str(tmp_path / "out"), "--user", "ann")
    assert (status, said) == (0, "v1.ann waits for its gate; `openclaw-rl up` puts it through.")


async def test_what_comes_in_at_once_is_taken_one_by_one(data_dir: Path, tmp_path: Path) -> None:
    given = [adapter(tmp_path / f"given-{rank}", {**CONFIG, "r": rank}) for rank in range(1, 9)]
    async with await SqliteStore.open(data_dir) as store:
        commands = make_commands(settings(data_dir), store)
        told = await asyncio.gather(*(commands.take_in(folder, "ann") for folder in given))
    taken = {one.label: one for one in StoreReader.open(data_dir).versions("ann")}
    for folder, one in zip(given, told, strict=True):
        version = taken[str(one["version"])]
        assert version.sha256 == folder_sha256(Path(str(version.folder))) == folder_sha256(folder)


def test_another_models_version_is_exported_as_its_own(data_dir: Path, tmp_path: Path) -> None:
    asyncio.run(run_with(data_dir, "org/one#1"))
    undoing.take_in(settings(data_dir), adapter(tmp_path / "given"), user="local", as_json=True)
    asyncio.run(run_with(data_dir, "org/two#2"))
    undoing.export(settings(data_dir), "v4", tmp_path / "out", user=None)
    config = json.loads((tmp_path / "out" / "adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == "org/one"
    assert 'base_model: "org/one"' in (tmp_path / "out" / "README.md").read_text()


async def run_with(data_dir: Path, model: str) -> None:
    async with await SqliteStore.open(data_dir) as store:
        await store.lessons.run_with(model)
