"""Forgetting goes on after whatever stops it, and leaves rows, files and records without a word of a conversation."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Collection
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from openclaw_rl.config import load_config
from openclaw_rl.errors import NotFound
from openclaw_rl.protocols import LearningStore
from openclaw_rl.release.undo.forgetting import MAX_ROUNDS, Forgetting, NotForgotten
from openclaw_rl.store import SqliteStore
from openclaw_rl.types import TRACES_LEFT, Episode, Lesson, Session, Undoing, Undone
from openclaw_rl.wiring.commands import make_commands
from tests.factories.orders import sample
from tests.factories.planned import made, planned, states, take
from tests.factories.stored import put_samples
from tests.fakes.release import NOWHERE
from tests.unit.store.sql.test_undoing import found_in


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    async with await SqliteStore.open(tmp_path) as opened:
        yield opened


def commands(store: SqliteStore, data: Path) -> Any:
    return make_commands(load_config(env={}, overrides=[f"store.data_dir={data}"]).config, store)


async def learned(store: SqliteStore, data: Path) -> None:
    """Versions 1 and 2, with files, learned from the sessions marker-1 and other; so says the record."""
    await put_samples(store, [made("marker-1"), made("other")])
    for number, name in ((1, "other"), (2, "marker-1")):
        await take(store, planned(number, number - 1, f"{name}.0"))
        folder = data / "versions" / f"v{number}"
        (folder / "weights").mkdir(parents=True)
        (folder / "weights" / "adapter_model.safetensors").write_bytes(b"marker-1" if number == 2 else b"x")
    records = data / "records"
    records.mkdir()
    turns = [{"turn": f"{name}.0", "line": "local", "hints": [f"about {name}"]} for name in ("other", "marker-1")]
    steps = [{"line": "local", "step": 2, "samples": ["marker-1.0"], "replayed": ["other.0"], "reason": ""}]
    for name, lines in (("turns", turns), ("steps", steps)):
        (records / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    with_paths = data / "versions"
    for number in (1, 2):
        path = with_paths / f"v{number}" / "weights"
        await store.lessons._transact(lambda c, n=number, p=path: _set_path(c, n, str(p)))  # type: ignore[misc]


def _set_path(connection: Any, number: int, path: str) -> None:
    connection.exec_driver_sql("UPDATE version SET weights = ? WHERE number = ?", (f"file:{path}", number))


async def test_a_session_leaves_nothing_and_the_others_stay(store: SqliteStore, tmp_path: Path) -> None:
    await learned(store, tmp_path)
    assert len(found_in(tmp_path, "marker-1")) >= 3
    told = await commands(store, tmp_path).forget(session="marker-1")
    assert told == {
        "user": "local",
        "answered": "v2",
        "answers": "v1",
        "undone": ["v2"],
        "removed": 1,
        "returned": 0,
        "sessions": 1,
        "deleted": ["v2"],
        "erased": True,
    }
    assert found_in(tmp_path, "marker-1") == []
    assert sorted(path.name for path in (tmp_path / "versions").iterdir()) == ["v1"]
    (line,) = map(json.loads, (tmp_path / "records" / "turns.jsonl").read_text().splitlines())
    (step,) = map(json.loads, (tmp_path / "records" / "steps.jsonl").read_text().splitlines())
    assert (line["turn"], step["samples"], step["replayed"]) == ("other.0", [], ["other.0"])
    assert (tmp_path / "records" / "turns.jsonl").stat().st_mode & 0o777 == 0o600
    assert await states(store) == ["live", "rolled_back"]
    with pytest.raises(NotFound, match="no session 'marker-1'"):
        await commands(store, tmp_path).forget(session="marker-1")


async def test_a_user_leaves_with_the_whole_line_and_nobody_elses(store: SqliteStore, tmp_path: Path) -> None:
    await learned(store, tmp_path)
    await put_samples(store, [sample(0, session="hers", id="hers.0", line="ann")])
    told = await commands(store, tmp_path).forget(user="local")
    assert (told["answers"], told["deleted"], told["sessions"]) == ("v0", ["v1", "v2"], 2)
    assert list((tmp_path / "versions").iterdir()) == []
    assert (tmp_path / "records" / "turns.jsonl").read_text() == ""
    assert (await states(store), await store.lessons.sessions_of("local")) == (["rolled_back"] * 2, [])
    assert [one.id for one in await store.lessons.waiting_samples("ann", 9)] == ["hers.0"]
    with pytest.raises(NotFound, match="'nobody'"):
        await commands(store, tmp_path).forget(user="nobody")


async def test_a_user_leaves_the_line_of_an_environment_too(store: SqliteStore, tmp_path: Path) -> None:
    await learned(store, tmp_path)
    episode = Episode(id="e", environment="box", task="t", group="g", attempt=0)
    session = Session(id="agent", user="local", client="test", opened_at=1.0, last_seen_at=1.0)
    await store.put_session(session)
    await put_samples(store, [sample(0, session="agent", id="agent.0", line="env:box")])
    await store.put_session(replace(session, episode=episode))
    await take(store, replace(planned(1, 0, "agent.0"), line="env:box"))
    told = await commands(store, tmp_path).forget(user="local")
    assert (told["sessions"], told["deleted"]) == (3, ["v1", "v2", "v1-env.box"])
    assert [one.state for one in await store.lessons.versions("env:box")] == ["rolled_back"]
    assert await store.lessons.sessions_of("env:box") == []


async def test_which_line_is_a_users_own_is_not_decided_here(
    store: SqliteStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await learned(store, tmp_path)
    await take(store, replace(planned(1, 0), line="shared:all"))
    monkeypatch.setattr("openclaw_rl.release.undo.commands.line_for", lambda user: "shared:all", raising=False)
    assert (await commands(store, tmp_path).forget(user="nobody"))["user"] == "shared:all"
    monkeypatch.undo()
    assert (await commands(store, tmp_path).forget(user="shared:all"))["user"] == "shared:all", "a line by its own name"


class Killed(Exception):
    """Stands for the end of the process."""


@pytest.mark.parametrize("stage", ["take_back", "forget_records", "log", "erase"])
async def test_stopped_anywhere_the_next_try_leaves_nothing(store: SqliteStore, tmp_path: Path, stage: str) -> None:
    await learned(store, tmp_path)
    whole = commands(store, tmp_path)

    def die(*_: Any, **__: Any) -> Any:
        raise Killed

    class DyingLog:
        versions, forget = store.lessons.versions, staticmethod(die)
        get_session = store.lessons.get_session
        flag, set_flag = store.lessons.flag, store.lessons.set_flag

    changes: Any = {stage: DyingLog() if stage == "log" else die}
    with pytest.raises(Killed):
        await replace(whole, forgetting=replace(whole.forgetting, **changes)).forget(session="marker-1")
    if stage == "erase":
        assert await store.lessons.flag(TRACES_LEFT) is not None
        await whole.forgetting.resume()
    else:
        await whole.forget(session="marker-1")
    assert await store.lessons.flag(TRACES_LEFT) is None
    assert found_in(tmp_path, "marker-1") == []
    assert (await states(store), await store.lessons.get_session("marker-1")) == (["live", "rolled_back"], None)


async def test_files_that_cannot_be_removed_are_told_and_the_next_try_ends_it(
    store: SqliteStore, tmp_path: Path
) -> None:
    """A link in the place of a folder is what nobody may remove with all that lies behind it, not even root."""
    await learned(store, tmp_path)
    folder, elsewhere = tmp_path / "versions" / "v1", tmp_path / "elsewhere"
    folder.rename(elsewhere)
    folder.symlink_to(elsewhere)
    whole = commands(store, tmp_path)
    with pytest.raises(NotForgotten, match=re.escape(str(folder))) as told:
        await whole.forget(session="other")
    assert ("v1" in str(told.value), "forget it again" in str(told.value)) == (True, True)
    assert not (tmp_path / "versions" / "v2").exists(), "what can be removed is, whatever else cannot"
    assert await store.lessons.get_session("other") is not None, "the next try finds it"
    folder.unlink()
    assert (await whole.forget(session="other"))["deleted"] == ["v1", "v2"]
    assert await store.lessons.get_session("other") is None


class Learning:
    """A log in which a step learns from the lesson every time before it is forgotten."""

    def __init__(self, times: int) -> None:
        self.left = times
        self.taken_back = 0

    async def versions(self, line: str, *, every_model: bool) -> list[Any]:
        return []

    async def forget(self, lesson: Lesson, plan: Undoing) -> bool:
        self.left -= 1
        return self.left < 0

    async def get_session(self, name: str) -> Session | None:
        return None

    async def flag(self, name: str) -> str | None:
        return None

    async def set_flag(self, name: str, value: str | None) -> None: ...

    async def take_back(self, lesson: Lesson) -> Undone:
        self.taken_back += 1
        plan = Undoing(answering=0, back_to=0, undone=(), rebuilt=(), holding=())
        return Undone(plan=plan, is_done=True)


async def test_what_is_learned_meanwhile_is_taken_back_too() -> None:
    async def erase() -> bool:
        return True

    async def forget_cache(_: Collection[Session]) -> None: ...

    def over(log: Learning) -> Forgetting:
        return Forgetting(
            log=cast("LearningStore", log),
            keeper=NOWHERE,
            take_back=log.take_back,
            let_go=lambda _: nullcontext(),
            forget_records=lambda _: None,
            forget_cache=forget_cache,
            erase=erase,
        )

    lesson = Lesson(line="local", sessions=("a",))
    twice = Learning(2)
    assert (await over(twice).forget(lesson)).is_erased
    assert twice.taken_back == 3
    always = Learning(99)
    with pytest.raises(NotForgotten, match="stop the server"):
        await over(always).forget(lesson)
    assert always.taken_back == MAX_ROUNDS


async def test_the_engines_cache_forgets_before_the_rows_go(store: SqliteStore, tmp_path: Path) -> None:
    await learned(store, tmp_path)
    forgotten: list[list[str]] = []

    async def forget_cache(sessions: Collection[Session]) -> None:
        forgotten.append([session.id for session in sessions])
        assert await store.lessons.get_session("marker-1") is not None, "killed here, the same command does it again"

    whole = commands(store, tmp_path)
    await replace(whole, forgetting=replace(whole.forgetting, forget_cache=forget_cache)).forget(session="marker-1")
    assert forgotten == [["marker-1"]]
