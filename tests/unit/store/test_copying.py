"""A store moves between the databases, either way, row by row."""

from __future__ import annotations

from pathlib import Path

import pytest

from openclaw_rl.errors import StoreError
from openclaw_rl.store import open_reader, open_writer
from openclaw_rl.store.copying import copy_store
from openclaw_rl.types import ApiKey, Feedback
from tests.factories.planned import made, planned, take
from tests.factories.stored import put_samples
from tests.factories.turns import SESSION, make_conversation, make_session
from tests.postgres import Postgres


async def fill(directory: Path) -> None:
    async with await open_writer(directory) as store:
        await put_samples(store, [made(name) for name in "abc"])
        await take(store, planned(1, 0, "a.0"))
        await store.put_session(make_session(opted_out=True))
        for turn in make_conversation(3):
            await store.put_turn(turn)
        said = Feedback(session=SESSION, index=0, user="ann", given_at=150.25, score=1, text="a\0b \x1b ä")
        await store.put_feedback(said)
        await store.put_key(ApiKey(id="k", user="ann", digest=b"\0\1", created_at=1.5))
        await store.close_session(SESSION, 200.0)


async def test_there_and_back_again(tmp_path: Path, postgres: Postgres) -> None:
    here, url, back = tmp_path / "here", postgres.url(), tmp_path / "back"
    await fill(here)
    there = copy_store(str(here), url)
    again = copy_store(url, str(back))
    assert there == again
    assert {one.name: one.num_rows for one in there}["turn"] == 6
    readers = [open_reader(here), open_reader(tmp_path, url), open_reader(back)]
    assert readers[0].turns(SESSION) == readers[1].turns(SESSION) == readers[2].turns(SESSION)
    for ask in ("sessions", "versions", "keys", "skips", "waiting", "planned_steps"):
        one, two, three = (getattr(reader, ask)() for reader in readers)
        assert one == two == three, ask
    assert readers[1].feedback(SESSION)[0].text == "a\0b \x1b ä"
    for target in (url, str(back)):
        with pytest.raises(StoreError, match="is not empty"):
            copy_store(str(here), target)
    async with await open_writer(tmp_path / "writes", url) as store:  # and it goes on from there
        await store.put_session(make_session("s-9"))
        await store.close_session("s-9", 300.0)
    assert open_reader(tmp_path, url).session("s-9") is not None


async def test_a_row_that_differs_ends_it(tmp_path: Path, postgres: Postgres) -> None:
    here, url = tmp_path / "here", postgres.url()
    await fill(here)
    async with await open_writer(tmp_path / "x", url):
        schema = url.rpartition("%3D")[2]
        postgres.query(
            f"CREATE FUNCTION {schema}.spoil() RETURNS trigger AS 'BEGIN NEW.text = ''!''; RETURN NEW; END' "
            f"LANGUAGE plpgsql; CREATE TRIGGER spoil BEFORE INSERT ON {schema}.feedback "
            f"FOR EACH ROW EXECUTE FUNCTION {schema}.spoil()"
        )
    with pytest.raises(StoreError, match="the rows of feedback are not the same"):
        copy_store(str(here), url)
    assert open_reader(tmp_path, url).sessions() == [], "nothing was copied"


async def test_nobody_writes_the_source_meanwhile(tmp_path: Path, postgres: Postgres) -> None:
    async with await open_writer(tmp_path / "here"):
        with pytest.raises(StoreError, match="already writes"):
            copy_store(str(tmp_path / "here"), postgres.url())
