"""What any engine must do, against the `Engine` protocol: run on every engine that `conftest.py` names."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from openclaw_rl.engine.worker.wire import merge
from openclaw_rl.errors import CONTEXT_LENGTH_EXCEEDED, EngineLost, EngineRefused
from openclaw_rl.types import BASE_VERSION, Delta, GenerateRequest, Publication, Sampling, Scored, ScoreRequest
from tests.engines.bench import MAX_ACTIVE, Bench

pytestmark = [pytest.mark.asyncio(loop_scope="module")]

PROMPT = (1, 300, 20, 30, 40, 50, 60)
BASE = Publication(version=BASE_VERSION)


def ask(
    prompt: Sequence[int] = PROMPT, *, version: str | None = None, salt: str = "", **sampling: Any
) -> GenerateRequest:
    settings = {"max_tokens": 12, "temperature": 1.0, "seed": 5, **sampling}
    drawn = Sampling(**settings)
    return GenerateRequest(request_id="r", token_ids=list(prompt), sampling=drawn, version=version, cache_salt=salt)


async def deltas_of(bench: Bench, request: GenerateRequest) -> list[Delta]:
    async with aclosing(bench.engine.generate(request)) as deltas:
        return [delta async for delta in deltas]


async def whole(bench: Bench, request: GenerateRequest) -> Delta:
    return merge(await deltas_of(bench, request))


async def score(
    bench: Bench, prompt: Sequence[int], said: Sequence[int], *, version: str | None = None, top: int = 0
) -> Scored:
    request = ScoreRequest(
        request_id="s", sequences=((*prompt, *said),), starts=(len(prompt),), version=version, top_logprobs=top
    )
    (scored,) = await bench.engine.score(request)
    return scored


@asynccontextmanager
async def loaded(bench: Bench, *publications: Publication) -> AsyncIterator[None]:
    """These versions, and afterwards the base alone again."""
    for publication in publications:
        await bench.engine.publish(publication)
    try:
        yield
    finally:
        await bench.engine.publish(BASE)
        for label in (await bench.engine.state()).versions:
            if label != BASE_VERSION:
                await bench.engine.retire(label)


async def test_it_says_what_it_serves(bench: Bench) -> None:
    state = await bench.engine.state()
    assert (state.versions, state.live_version) == ((BASE_VERSION,), BASE_VERSION)
    assert state.vocab_size == bench.model.vocab_size
    assert state.context_window == bench.window


async def test_what_was_sampled_is_scored_alike(bench: Bench) -> None:
    answer = await whole(bench, ask())
    assert len(answer.token_ids) == 12
    scored = await score(bench, PROMPT, answer.token_ids)
    assert scored.logprobs == pytest.approx(answer.logprobs, abs=bench.tolerance)


async def test_log_probs_are_those_at_the_temperature(bench: Bench) -> None:
    """log p_T(a) - log p_T(b) = (log p(a) - log p(b)) / T."""
    answer = await whole(bench, ask(temperature=0.5, top_logprobs=5))
    scored = await score(bench, PROMPT, answer.token_ids, top=20)
    assert answer.top_logprobs is not None
    assert scored.top_logprobs is not None
    for sampled, plain in zip(answer.top_logprobs, scored.top_logprobs, strict=True):
        assert len(sampled) == 5
        assert [top.token_id for top in sampled] == [top.token_id for top in plain[:5]]
        gaps = [top.logprob - sampled[0].logprob for top in sampled]
        assert gaps == pytest.approx(
            [(top.logprob - plain[0].logprob) / 0.5 for top in plain[:5]], abs=4 * bench.tolerance
        )
    for token, logprob, tops in zip(answer.token_ids, answer.logprobs, answer.top_logprobs, strict=True):
        assert logprob in [top.logprob for top in tops if top.token_id == token] or logprob <= tops[-1].logprob


async def test_greedy_answers_record_temperature_one(bench: Bench) -> None:
    answer = await whole(bench, ask(temperature=0.0, seed=None, top_logprobs=1))
    scored = await score(bench, PROMPT, answer.token_ids)
    assert answer.top_logprobs is not None
    assert [tops[0].token_id for tops in answer.top_logprobs] == list(answer.token_ids)
    assert scored.logprobs == pytest.approx(answer.logprobs, abs=bench.tolerance)


async def test_it_says_what_changes_its_log_probs(bench: Bench) -> None:
    shaped = ask(top_p=0.5)
    answer = await whole(bench, shaped)
    scored = await score(bench, PROMPT, answer.token_ids)
    if not shaped.sampling.shaping & bench.host.capabilities.logprobs_changed_by:
        assert scored.logprobs == pytest.approx(answer.logprobs, abs=bench.tolerance)


async def test_another_temperature_is_scored_exactly_or_refused(bench: Bench) -> None:
    answer = await whole(bench, ask(temperature=0.5))
    request = ScoreRequest(
        request_id="s", sequences=((*PROMPT, *answer.token_ids),), starts=(len(PROMPT),), temperature=0.5
    )
    try:
        (scored,) = await bench.engine.score(request)
    except EngineRefused:
        return
    assert scored.logprobs == pytest.approx(answer.logprobs, abs=bench.tolerance)


async def test_tokens_come_one_after_the_other(bench: Bench) -> None:
    deltas = await deltas_of(bench, ask())
    assert [delta.finish_reason for delta in deltas] == [None] * (len(deltas) - 1) + ["length"]
    assert merge(deltas).token_ids == (await whole(bench, ask())).token_ids


async def test_a_stop_token_ends_the_answer_and_belongs_to_it(bench: Bench) -> None:
    plain = await whole(bench, ask(temperature=0.0, max_tokens=20))
    stop = plain.token_ids[7]
    first = plain.token_ids.index(stop)
    stopped = await whole(bench, replace(ask(temperature=0.0, max_tokens=20), stop_token_ids=(stop,)))
    assert (stopped.token_ids, stopped.finish_reason) == (plain.token_ids[: first + 1], "stop")
    assert plain.finish_reason == "length", "nothing but the request says what ends an answer"


async def test_the_same_seed_says_the_same(bench: Bench) -> None:
    same = [(await whole(bench, ask(seed=7, max_tokens=16))).token_ids for _ in range(2)]
    others = {(await whole(bench, ask(seed=seed, max_tokens=16))).token_ids for seed in (8, 9, 10)}
    assert same[0] == same[1]
    assert len({same[0], *others}) > 1


async def test_a_cancelled_answer_frees_its_place(bench: Bench) -> None:
    room = (await bench.engine.state()).context_window - len(PROMPT)
    streams = [bench.engine.generate(ask(max_tokens=room, seed=number)) for number in range(MAX_ACTIVE)]
    for stream in streams:
        await anext(stream)
    for stream in streams:
        await stream.aclose()
    assert len((await whole(bench, ask())).token_ids) == 12


async def test_a_publish_in_mid_stream_leaves_the_old_version_to_its_end(bench: Bench) -> None:
    request = ask(max_tokens=40, temperature=0.7)
    alone = await whole(bench, request)
    async with loaded(bench), aclosing(bench.engine.generate(request)) as stream:
        began = [await anext(stream)]
        await bench.engine.publish(bench.version("v1", 1, live=True))
        answer = merge([*began, *[delta async for delta in stream]])
        assert {answer.version, *(delta.version for delta in began)} == {BASE_VERSION}
        assert answer.token_ids == alone.token_ids
        after = await whole(bench, ask())
        assert after.version == "v1"
        new, old = [await score(bench, PROMPT, after.token_ids, version=v) for v in ("v1", BASE_VERSION)]
        assert new.logprobs == pytest.approx(after.logprobs, abs=bench.tolerance)
        assert max(abs(a - b) for a, b in zip(new.logprobs, old.logprobs, strict=True)) > 50 * bench.tolerance


async def test_a_version_that_is_retired_ends_what_it_began(bench: Bench) -> None:
    async with loaded(bench, bench.version("v1", 1)):
        alone = await whole(bench, ask(version="v1", max_tokens=40))
        async with aclosing(bench.engine.generate(ask(version="v1", max_tokens=40))) as stream:
            began = [await anext(stream)]
            await bench.engine.retire("v1")
            with pytest.raises(EngineRefused):
                await whole(bench, ask(version="v1"))
            answer = merge([*began, *[delta async for delta in stream]])
        assert (answer.token_ids, answer.version) == (alone.token_ids, "v1")


async def test_a_version_that_is_not_there_is_an_error(bench: Bench) -> None:
    with pytest.raises(EngineRefused) as error:
        await whole(bench, ask(version="v99"))
    assert error.value.code == "version_not_found"
    with pytest.raises(EngineRefused):
        await score(bench, PROMPT, (5,), version="v99")


async def test_a_label_names_the_same_bytes_for_ever(bench: Bench) -> None:
    async with loaded(bench, bench.version("v8", 1)):
        with pytest.raises(EngineRefused, match="names the same bytes for ever"):
            await bench.engine.publish(bench.version("v8", 2))
        await bench.engine.publish(bench.version("v8", 1, live=True))
        assert (await bench.engine.state()).live_version == "v8"
        with pytest.raises(EngineRefused, match="is live"):
            await bench.engine.retire("v8")


async def test_files_that_are_not_what_was_published_are_refused(bench: Bench) -> None:
    made = bench.version("v3", 3)
    assert made.weights is not None
    wrong = replace(made, weights=replace(made.weights, sha256="0" * 64))
    with pytest.raises(EngineRefused, match="checksum"):
        await bench.engine.publish(wrong)
    assert (await bench.engine.state()).versions == (BASE_VERSION,)


async def test_the_window_is_kept(bench: Bench) -> None:
    window = (await bench.engine.state()).context_window
    with pytest.raises(EngineRefused) as error:
        await whole(bench, ask([7] * window))
    assert error.value.code == CONTEXT_LENGTH_EXCEEDED
    last = await whole(bench, ask([7] * (window - 3), max_tokens=50))
    assert (len(last.token_ids), last.finish_reason) == (3, "length")
    full = (7,) * (window - 4)
    assert len((await score(bench, full, (7, 8, 9, 10))).logprobs) == 4, "what fills the window can be scored"


async def test_mixed_versions_in_one_batch(bench: Bench) -> None:
    labels = [BASE_VERSION, "v1", "v2", "v3"]
    async with loaded(bench, *(bench.version(label, int(label[1])) for label in labels[1:])):
        alone = {label: await whole(bench, ask(version=label, temperature=0.0)) for label in labels}
        wanted = [labels[number % 4] for number in range(32)]
        answers = await asyncio.gather(*(whole(bench, ask(version=label, temperature=0.0)) for label in wanted))
        assert [answer.version for answer in answers] == wanted
        for label, answer in zip(wanted, answers, strict=True):
            scored = await score(bench, PROMPT, answer.token_ids, version=label)
            assert scored.logprobs == pytest.approx(answer.logprobs, abs=bench.tolerance)
        assert len({answer.token_ids for answer in alone.values()}) > 1
    assert (await bench.engine.state()).versions == (BASE_VERSION,)


async def test_a_cache_is_its_owners_and_can_be_forgotten(bench: Bench) -> None:
    prompt = [(7 * number) % 500 for number in range(200)]  # vLLM keeps whole blocks: 128 tokens on a CPU
    seen = [(await whole(bench, ask(prompt, salt=salt))).num_cached_tokens for salt in ("ann", "ann", "bob", "", "")]
    await bench.engine.forget_cache({"ann"})
    seen.append((await whole(bench, ask(prompt, salt="ann"))).num_cached_tokens)
    assert [num > 0 for num in seen] == [False, True, False, False, False, False]


async def until_it_dies(bench: Bench, request: GenerateRequest) -> Delta:
    """Kills it at the first token; what came until it was gone."""
    got: list[Delta] = []
    try:
        async with aclosing(bench.engine.generate(request)) as stream:
            async for delta in stream:
                got.append(delta)
                if len(got) == 1:
                    await bench.kill()
    except EngineLost:
        return merge(got)
    raise AssertionError("the answer came to its end")


async def test_death_in_mid_answer(bench: Bench) -> None:
    """What was said stays valid, and the next engine has the same versions."""
    async with loaded(bench, bench.version("v1", 1, live=True)):
        room = (await bench.engine.state()).context_window - len(PROMPT)
        request = ask(max_tokens=min(room, 2000), temperature=0.0)
        began = await until_it_dies(bench, request)
        await bench.host.wait_ready(600.0)
        state = await bench.engine.state()
        assert (state.versions, state.live_version) == ((BASE_VERSION, "v1"), "v1")
        rest = await whole(bench, ask([*PROMPT, *began.token_ids], temperature=0.0))
        assert rest.version == "v1"
        scored = await score(bench, PROMPT, [*began.token_ids, *rest.token_ids], version="v1")
        assert scored.logprobs == pytest.approx([*began.logprobs, *rest.logprobs], abs=bench.tolerance)
