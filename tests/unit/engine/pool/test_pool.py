"""Several engines as one: who answers, what moves, and who has loaded what."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from openclaw_rl.engine.pool.pool import Pool
from openclaw_rl.engine.scripted import ScriptedOptions
from openclaw_rl.errors import ConfigError, EngineLost, EngineRefused, EngineUnavailable
from openclaw_rl.model.folder import folder_sha256
from openclaw_rl.protocols import EngineGroup
from openclaw_rl.types import BASE_VERSION, GenerateRequest, ScoreRequest
from tests.factories.weights import folder_ref
from tests.fakes.pools import ToyMember, pool_of, settled
from tests.unit.engine.prompts import ask, chat, saved, until_error, whole

TEXT = "one two three four five six seven eight nine ten"


@pytest.fixture
def three(tokenizer_folder: Path) -> list[ToyMember]:
    return [ToyMember(tokenizer_folder) for _ in range(3)]


@pytest.fixture
def request_of(tokenizer: Tokenizer) -> GenerateRequest:
    return replace(ask(chat(tokenizer, TEXT)), conversation="s-1")


def home_of(pool: Pool, members: list[ToyMember], request: GenerateRequest) -> ToyMember:
    chosen = pool.roster.choose(f"{request.cache_salt}\0{request.conversation}", None, [])
    assert chosen is not None
    return members[pool.members.index(chosen)]


def reasons(pool: Pool) -> str:
    return pool.last_error or ""


def score_request(version: str, tokenizer: Tokenizer) -> ScoreRequest:
    ids = tuple(chat(tokenizer, TEXT * 5))
    return ScoreRequest(request_id=f"proof-{version}", sequences=(ids,), starts=(1,), version=version)


async def prove(pool: Pool, version: str, tokenizer: Tokenizer) -> None:
    """As `release/gate/proving.py` asks: every member, the version before and the version."""
    for scorer in pool.scorers([BASE_VERSION, version]).values():
        for label in (BASE_VERSION, version):
            await scorer.score(score_request(label, tokenizer))


async def test_a_conversation_comes_back_to_its_engine(three: list[ToyMember], request_of: GenerateRequest) -> None:
    async with pool_of(three) as pool:
        for turn in range(20):
            await whole(pool.engine, replace(request_of, request_id=f"turn-{turn}"))
        assert sorted(len(member.asked) for member in three) == [0, 0, 20]
        for number in range(60):
            await whole(pool.engine, replace(request_of, conversation=f"s-{number}"))
        assert all(len(member.asked) > 8 for member in three)


async def test_what_has_no_conversation_is_spread(three: list[ToyMember], request_of: GenerateRequest) -> None:
    async with pool_of(three) as pool:
        for number in range(60):
            await whole(pool.engine, replace(request_of, conversation="", request_id=f"gate-{number}"))
        assert all(len(member.asked) > 8 for member in three)


async def test_a_request_that_has_no_token_moves_by_itself(three: list[ToyMember], request_of: GenerateRequest) -> None:
    async with pool_of(three) as pool:
        expected = await whole(pool.engine, request_of)
        home = home_of(pool, three, request_of)
        home.tokens_before_death = 0
        assert await whole(pool.engine, request_of) == expected
        assert Counter(len(member.asked) for member in three) == Counter([2, 1, 0])
        assert not home.is_ready


async def test_one_that_has_is_lost_and_goes_on_elsewhere(three: list[ToyMember], request_of: GenerateRequest) -> None:
    async with pool_of(three) as pool:
        expected = await whole(pool.engine, request_of)
        home_of(pool, three, request_of).tokens_before_death = 3
        told, error = await until_error(pool.engine, request_of)
        assert isinstance(error, EngineLost)
        assert tuple(told) == expected.token_ids[: len(told)]
        assert len(told) >= 3
        rest = await whole(pool.engine, replace(request_of, token_ids=[*request_of.token_ids, *told]))
        assert (*told, *rest.token_ids) == expected.token_ids
        assert rest.logprobs == expected.logprobs[len(told) :]


async def test_a_request_that_kills_engines_ends(tokenizer_folder: Path, request_of: GenerateRequest) -> None:
    members = [ToyMember(tokenizer_folder) for _ in range(9)]
    async with pool_of(members) as pool:
        for member in members:
            member.tokens_before_death = 0
        _, error = await until_error(pool.engine, request_of)
        assert isinstance(error, EngineLost)
        assert sum(member.is_ready for member in members) == 5


async def test_requests_wait_while_nobody_answers(tokenizer_folder: Path, request_of: GenerateRequest) -> None:
    members = [ToyMember(tokenizer_folder, up=False) for _ in range(2)]
    async with pool_of(members, wait_s=5) as pool:
        assert pool.state is None
        assert reasons(pool) == "engine 1: it is starting; engine 2: it is starting"
        waiting = asyncio.create_task(whole(pool.engine, request_of))
        await asyncio.sleep(0.01)
        members[1].come_up()
        assert (await waiting).finish_reason == "stop"
        assert pool.is_ready
        assert not reasons(pool)


async def test_the_wait_has_a_limit(tokenizer_folder: Path, request_of: GenerateRequest) -> None:
    members = [ToyMember(tokenizer_folder, up=False) for _ in range(2)]
    async with pool_of(members, wait_s=0.01, max_waiting=1) as pool:
        both = await asyncio.gather(until_error(pool.engine, request_of), until_error(pool.engine, request_of))
        assert all(isinstance(error, EngineUnavailable) for _, error in both)
        assert sorted("wait for the engine" in str(error) for _, error in both) == [False, True]


async def test_a_full_engine_sends_on_and_a_full_pool_says_so(
    three: list[ToyMember], request_of: GenerateRequest
) -> None:
    async with pool_of(three) as pool:
        home_of(pool, three, request_of).is_full = True
        assert (await whole(pool.engine, request_of)).finish_reason == "stop"
        for member in three:
            member.is_full = True
        _, error = await until_error(pool.engine, request_of)
        assert isinstance(error, EngineUnavailable)
        assert pool.is_ready


async def test_a_crowd_of_one_conversation_spills_over(tokenizer_folder: Path, request_of: GenerateRequest) -> None:
    members = [ToyMember(tokenizer_folder, ScriptedOptions(first_token_delay_s=0.05)) for _ in range(3)]
    async with pool_of(members) as pool:
        await asyncio.gather(*(whole(pool.engine, request_of) for _ in range(60)))
        assert max(len(member.asked) for member in members) <= 30
        assert sum(len(member.asked) for member in members) == 60


async def test_a_publish_reaches_all_and_then_it_is_live(
    three: list[ToyMember], request_of: GenerateRequest, tmp_path: Path
) -> None:
    async with pool_of(three) as pool:
        assert isinstance(pool, EngineGroup)
        await pool.engine.publish(saved(tmp_path, "v1", live=False))
        assert all("v1" in member.versions for member in three)
        assert (await whole(pool.engine, request_of)).version == BASE_VERSION
        await pool.engine.publish(saved(tmp_path, "v1"))
        state = await pool.engine.state()
        assert (state.live_version, state.versions) == ("v1", (BASE_VERSION, "v1"))
        assert state.checksums["v1"] == saved(tmp_path, "v1").sha256
        assert (await whole(pool.engine, request_of)).version == "v1"
        with pytest.raises(EngineRefused, match="live"):
            await pool.engine.retire("v1")
        await pool.engine.publish(replace(saved(tmp_path, "v2")))
        await pool.engine.retire("v1")
        assert all(member.versions == {BASE_VERSION, "v2"} for member in three)


async def test_what_all_refuse_is_refused(three: list[ToyMember], tmp_path: Path) -> None:
    async with pool_of(three) as pool:
        for member in three:
            member.refuses["v1"] = "no such folder"
        with pytest.raises(EngineRefused, match="no such folder"):
            await pool.engine.publish(saved(tmp_path, "v1"))
        assert (await pool.engine.state()).versions == (BASE_VERSION,)
        assert all(one.health == "answers" and not one.reason for one in pool.health)


async def test_what_one_refuses_is_answered_by_the_others(
    three: list[ToyMember], request_of: GenerateRequest, tmp_path: Path
) -> None:
    async with pool_of(three) as pool:
        home = home_of(pool, three, request_of)
        home.refuses["v1"] = "no such folder here"
        await pool.engine.publish(saved(tmp_path, "v1", live=False))
        assert (await whole(pool.engine, replace(request_of, version="v1"))).version == "v1"
        assert not home.asked
        await whole(pool.engine, request_of)
        assert len(home.asked) == 1
        told = pool.health[three.index(home)]
        assert told.health == "answers"
        assert "no such folder here" in told.reason


async def test_an_engine_that_loads_other_bytes_is_named_and_not_asked(
    three: list[ToyMember], request_of: GenerateRequest, tmp_path: Path
) -> None:
    async with pool_of(three) as pool:
        three[1].loads_as["v1"] = "a" * 64
        await pool.engine.publish(saved(tmp_path, "v1", live=False))
        assert "engine 2 loaded aaaaaaaaaaaaaaaa for v1" in pool.health[1].reason
        assert "v1" not in three[1].versions
        assert set(pool.scorers(["v1"])) == {"engine 1", "engine 3"}
        assert (await pool.engine.state()).checksums["v1"] == saved(tmp_path, "v1").sha256
        for number in range(20):
            await whole(pool.engine, replace(request_of, version="v1", conversation=f"s-{number}"))
        assert not three[1].asked


async def test_one_that_was_away_is_caught_up_before_it_answers(
    three: list[ToyMember], request_of: GenerateRequest, tmp_path: Path, tokenizer: Tokenizer
) -> None:
    async with pool_of(three) as pool:
        home = home_of(pool, three, request_of)
        await pool.engine.publish(saved(tmp_path, "v1"))
        home.die()
        await whole(pool.engine, request_of)
        await pool.engine.publish(saved(tmp_path, "v2"))
        await prove(pool, "v2", tokenizer)
        await pool.engine.retire("v1")
        assert pool.health[three.index(home)].health == "down"
        assert pool.is_ready
        home.come_up()
        assert (await whole(pool.engine, request_of)).version == "v2"
        await settled(pool)
        assert home.versions == {BASE_VERSION, "v2"}
        assert home.asked == ["proof-v2"], "it had to prove itself"
        assert (await whole(pool.engine, request_of)).version == "v2"
        assert home.asked[1:] == ["r"]


async def test_what_was_retired_while_one_was_away_goes_there_too(
    three: list[ToyMember], request_of: GenerateRequest, tmp_path: Path
) -> None:
    async with pool_of(three) as pool:
        for version in ("v1", "v2"):
            await pool.engine.publish(saved(tmp_path, version, live=False))
        three[0].die()
        await pool.engine.retire("v1")
        three[0].come_up(remembers=True)
        assert three[0].versions == {BASE_VERSION, "v1", "v2"}
        assert (await pool.engine.state()).versions == (BASE_VERSION, "v2")
        await settled(pool)
        assert three[0].versions == {BASE_VERSION, "v2"}
        with pytest.raises(EngineRefused, match="not loaded"):
            await pool.engine.retire("v1")


@pytest.mark.parametrize("is_adapter", [True, False])
async def test_others_answer_while_one_loads_a_whole_model(
    three: list[ToyMember], request_of: GenerateRequest, tmp_path: Path, is_adapter: bool
) -> None:
    async with pool_of(three) as pool:
        first = next(replace(request_of, conversation=name) for name in NAMES if is_of(pool, name, 0))
        publication = saved(tmp_path, "v1", live=False)
        if not is_adapter:
            (tmp_path / "v1" / "adapter_config.json").unlink()
            path = tmp_path / "v1"
            publication = replace(publication, weights=folder_ref(str(path), folder_sha256(path)))
        release = three[0].hold_publications()
        publishing = asyncio.create_task(pool.engine.publish(publication))
        await asyncio.sleep(0.01)
        await whole(pool.engine, first)
        assert len(three[0].asked) == is_adapter
        assert [one.health for one in pool.health] == ["answers"] * 3
        release()
        await publishing
        await whole(pool.engine, first)
        assert len(three[0].asked) == is_adapter + 1


NAMES = [f"s-{number}" for number in range(50)]


def is_of(pool: Pool, conversation: str, place: int) -> bool:
    return pool.roster.choose(f"ann\0{conversation}", None, []) is pool.members[place]


async def test_a_late_joiner_that_serves_something_else_does_not_answer_with_it(
    three: list[ToyMember], request_of: GenerateRequest, tmp_path: Path, tokenizer: Tokenizer
) -> None:
    three[2].die()
    async with pool_of(three) as pool:
        await pool.engine.publish(saved(tmp_path, "v1"))
        await prove(pool, "v1", tokenizer)
        three[2].serves_base.add("v1")
        three[2].come_up()
        await settled(pool)
        assert set(pool.scorers([BASE_VERSION])) == {"engine 1", "engine 2", "engine 3"}
        assert set(pool.scorers(["v1"])) == {"engine 1", "engine 2"}
        assert "answers otherwise" in pool.health[2].reason
        del three[2].asked[:]
        for number in range(20):
            assert (await whole(pool.engine, replace(request_of, conversation=f"s-{number}"))).version == "v1"
        assert not three[2].asked


async def test_all_die_and_come_back_with_what_was_published(
    three: list[ToyMember], request_of: GenerateRequest, tmp_path: Path
) -> None:
    async with pool_of(three) as pool:
        await pool.engine.publish(saved(tmp_path, "v1"))
        for member in three:
            member.die()
        asking = asyncio.create_task(whole(pool.engine, replace(request_of, version="v1")))
        await asyncio.sleep(0.01)
        three[0].come_up()
        assert (await asking).version == "v1"


async def test_a_death_in_mid_publish_is_no_refusal(
    three: list[ToyMember], request_of: GenerateRequest, tmp_path: Path
) -> None:
    async with pool_of(three) as pool:
        three[0].hang()
        publishing = asyncio.create_task(pool.engine.publish(saved(tmp_path, "v1")))
        await asyncio.sleep(0.01)
        three[0].die()
        three[0].wake()
        await publishing
        assert [("v1" in member.versions) for member in three[1:]] == [True, True]
        three[0].come_up()
        await settled(pool)
        assert "v1" in three[0].versions


async def test_what_is_forgotten_is_forgotten_everywhere_before_the_next_request(
    three: list[ToyMember], request_of: GenerateRequest
) -> None:
    async with pool_of(three) as pool:
        home = home_of(pool, three, request_of)
        home.die()
        await pool.engine.forget_cache({"ann"})
        assert [member.forgotten for member in three if member is not home] == [[{"ann"}], [{"ann"}]]
        assert home.forgotten == []
        home.hang()
        home.come_up()
        await settled_but_hanging()
        await whole(pool.engine, request_of)
        assert not home.asked, "it has not forgotten yet"
        home.wake()
        await settled(pool)
        assert home.forgotten == [{"ann"}]
        await whole(pool.engine, request_of)
        assert home.asked == ["r"]


async def settled_but_hanging() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_a_silent_engine_loses_its_requests_and_gets_them_back(
    three: list[ToyMember], request_of: GenerateRequest
) -> None:
    async with pool_of(three, silent_s=0.05) as pool:
        home = home_of(pool, three, request_of)
        home.hang()
        assert (await whole(pool.engine, request_of)).finish_reason == "stop"
        assert pool.health[three.index(home)].health == "silent"
        assert len(home.asked) == 1
        await whole(pool.engine, request_of)
        assert len(home.asked) == 1, "it is left alone for a while"
        home.wake()
        await asyncio.sleep(0.06)
        await whole(pool.engine, request_of)
        assert len(home.asked) == 2
        assert pool.health[three.index(home)].health == "answers"


async def test_a_silent_engine_that_is_tried_again_may_be_left_again(
    tokenizer_folder: Path, request_of: GenerateRequest
) -> None:
    members = [ToyMember(tokenizer_folder), ToyMember(tokenizer_folder)]
    async with pool_of(members, silent_s=0.02) as pool:
        home = home_of(pool, members, request_of)
        home.hang()
        for number in range(1, 4):
            assert (await whole(pool.engine, request_of)).finish_reason == "stop"
            assert len(home.asked) == number
            await asyncio.sleep(0.03)


async def test_a_version_that_nobody_has_is_refused_once(three: list[ToyMember], request_of: GenerateRequest) -> None:
    async with pool_of(three) as pool:
        _, error = await until_error(pool.engine, replace(request_of, version="v9"))
        assert isinstance(error, EngineRefused)
        assert error.code == "version_not_found"
        assert [one.health for one in pool.health] == ["answers"] * 3
        assert sum(len(member.asked) for member in three) == 1


async def test_one_that_was_emptied_by_somebody_else_is_passed_by(
    three: list[ToyMember], request_of: GenerateRequest, tmp_path: Path
) -> None:
    async with pool_of(three) as pool:
        await pool.engine.publish(saved(tmp_path, "v1"))
        home = home_of(pool, three, request_of)
        home.forget_versions()
        assert (await whole(pool.engine, request_of)).version == "v1"
        assert len(home.asked) == 1


async def test_a_silent_engine_in_mid_answer(three: list[ToyMember], request_of: GenerateRequest) -> None:
    async with pool_of(three, silent_s=0.05) as pool:
        home = home_of(pool, three, request_of)
        deltas = pool.engine.generate(request_of)
        first = await anext(deltas)
        home.hang()
        with pytest.raises(EngineLost, match="said nothing"):
            [delta async for delta in deltas]
        rest = await whole(pool.engine, replace(request_of, token_ids=[*request_of.token_ids, *first.token_ids]))
        assert rest.finish_reason == "stop"


async def test_nobody_is_told_to_leave_where_there_is_nobody_else(
    tokenizer_folder: Path, request_of: GenerateRequest
) -> None:
    members = [ToyMember(tokenizer_folder), ToyMember(tokenizer_folder, up=False)]
    async with pool_of(members, silent_s=0.02) as pool:
        members[0].hang()
        asking = asyncio.create_task(whole(pool.engine, request_of))
        await asyncio.sleep(0.1)
        assert not asking.done()
        members[0].wake()
        assert (await asking).finish_reason == "stop"


async def test_an_engine_of_another_model_gets_no_request(three: list[ToyMember], request_of: GenerateRequest) -> None:
    odd = three[2]
    assert odd.state is not None
    odd.state = replace(odd.state, model="another", vocab_size=7)
    async with pool_of(three) as pool:
        told = pool.health[2]
        assert told.health == "catches up"
        assert "must serve one model" in told.reason
        for number in range(20):
            await whole(pool.engine, replace(request_of, conversation=f"s-{number}"))
        assert not odd.asked


async def test_scores_move_too(three: list[ToyMember], tokenizer: Tokenizer) -> None:
    async with pool_of(three) as pool:
        request = score_request(BASE_VERSION, tokenizer)
        expected = await pool.engine.score(request)
        (home,) = [member for member in three if member.asked]
        home.hang()
        asking = asyncio.create_task(pool.engine.score(request))
        await asyncio.sleep(0.01)
        home.die()
        home.wake()
        assert await asking == expected


async def test_the_smallest_window_counts(tokenizer_folder: Path) -> None:
    members = [ToyMember(tokenizer_folder, ScriptedOptions(context_window=size)) for size in (900, 700, 800)]
    async with pool_of(members) as pool:
        assert (await pool.engine.state()).context_window == 700


def test_a_pool_of_one_is_none(tokenizer_folder: Path) -> None:
    async def make() -> None:
        with pytest.raises(ConfigError, match="two engines"):
            Pool({"one": ToyMember(tokenizer_folder)})

    asyncio.run(make())
