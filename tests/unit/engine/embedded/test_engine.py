"""The engine's asyncio face: streams, cancellation, versions that change under running streams, scoring."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import replace

import pytest

from openclaw_rl.engine.embedded.cache import Strands
from openclaw_rl.engine.embedded.engine import EmbeddedEngine
from openclaw_rl.engine.embedded.scheduler import EngineWeights, Scheduler
from openclaw_rl.errors import EngineError, EngineLost, EngineRefused
from openclaw_rl.types import (
    BACKGROUND,
    PERSON,
    Delta,
    EngineState,
    GenerateRequest,
    Publication,
    Sampling,
    ScoreRequest,
)
from tests.factories.weights import folder_ref
from tests.unit.engine.embedded import rig
from tests.unit.engine.prompts import all_deltas, ask, until_error, whole

PROMPT = list(range(1, 40))

STATE = EngineState(
    model="tiny",
    versions=("v0",),
    live_version="v0",
    context_window=512,
    vocab_size=rig.VOCAB,
    device="cpu",
    dtype="float32",
)


def loaded(publication: Publication) -> EngineWeights:
    if publication.weights == folder_ref("/broken", publication.sha256):
        raise EngineRefused("the checksum differs", code="checksum_mismatch")
    return rig.weights(publication.version)


def make(
    *,
    max_active: int = 8,
    max_queued: int = 64,
    max_tokens: int = 20_000,
    max_adapters: int = 32,
    load: Callable[[Publication], EngineWeights] = loaded,
) -> EmbeddedEngine:
    scheduler = Scheduler(
        Strands(rig.runner(0).new_storage, max_tokens=max_tokens), max_active=max_active, prefill_chunk=32
    )
    return EmbeddedEngine(
        scheduler,
        rig.weights(),
        STATE,
        load,
        max_queued=max_queued,
        max_active=max_active,
        max_adapters=max_adapters,
    )


@pytest.fixture
async def engine() -> AsyncIterator[EmbeddedEngine]:
    made = make()
    yield made
    await made.close()


def publication(version: str, *, path: str = "/whole", live: bool = True) -> Publication:
    return Publication(version=version, weights=folder_ref(path, f"sum of {version}"), live=live)


def check(answer: Delta, prompt: list[int]) -> None:
    """Every token was sampled by the version that the answer names, computed on nothing else."""
    ids = [*prompt, *answer.token_ids]
    expected = rig.plain_logprobs(ids, len(prompt), rig.weights(answer.version))
    assert answer.logprobs == pytest.approx(expected, abs=5e-5)


async def test_concurrent_answers_are_those_of_a_plain_forward(engine: EmbeddedEngine) -> None:
    prompts = [[i, *PROMPT] for i in range(12)]
    answers = await asyncio.gather(*(whole(engine, ask(p, max_tokens=9, temperature=1.0, seed=1)) for p in prompts))
    for prompt, answer in zip(prompts, answers, strict=True):
        assert len(answer.token_ids) == 9
        check(answer, prompt)
    assert engine.num_requests == 0


async def test_all_deltas_end_with_one_finish_reason(engine: EmbeddedEngine) -> None:
    for _ in range(2):  # it rests and works again
        deltas = await all_deltas(engine, ask(PROMPT, max_tokens=6))
        assert [delta.finish_reason for delta in deltas if delta.finish_reason] == ["length"]
        assert deltas[-1].finish_reason == "length"


async def test_a_reader_that_leaves_frees_its_place() -> None:
    engine = make(max_active=1)
    async with aclosing(engine.generate(ask(PROMPT, max_tokens=400))) as deltas:
        await anext(deltas)
    assert (await whole(engine, ask([3, 4], max_tokens=4))).finish_reason == "length"
    assert engine.num_requests == 0
    await engine.close()


async def test_a_full_queue_is_a_clear_answer() -> None:
    engine = make(max_active=1, max_queued=2)
    running = [asyncio.ensure_future(whole(engine, ask([i, *PROMPT], max_tokens=100))) for i in range(3)]
    await asyncio.sleep(0)
    with pytest.raises(EngineRefused, match=r"engine\.max_queued") as refused:
        await whole(engine, ask(PROMPT))
    assert (refused.value.status, refused.value.code) == (503, "queue_full")
    assert {answer.finish_reason for answer in await asyncio.gather(*running)} == {"length"}
    await engine.close()


async def test_closing_ends_what_runs_and_refuses_what_comes() -> None:
    engine = make()
    task = asyncio.ensure_future(until_error(engine, ask(PROMPT, max_tokens=400)))
    await asyncio.sleep(0.01)
    await engine.close()
    assert isinstance((await task)[1], EngineLost)
    with pytest.raises(EngineLost):
        await whole(engine, ask(PROMPT))


async def test_a_defect_in_the_scheduler_ends_the_engine_visibly(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = make()
    monkeypatch.setattr(engine._scheduler, "step", lambda: (_ for _ in ()).throw(RuntimeError("a defect")))
    assert isinstance((await until_error(engine, ask(PROMPT)))[1], EngineLost)
    with pytest.raises(EngineLost):
        await engine.state()
    await engine.close()


async def test_a_published_version_is_live_at_once_and_running_answers_keep_theirs(engine: EmbeddedEngine) -> None:
    async with aclosing(engine.generate(ask(PROMPT, max_tokens=60))) as old:
        deltas = [await anext(old)]
        await engine.publish(publication("v1"))
        assert (await engine.state()).live_version == "v1"
        new = await whole(engine, ask(PROMPT, max_tokens=5))
        pinned = await whole(engine, ask(PROMPT, version="v0", max_tokens=5))
        deltas += [delta async for delta in old]
    assert {delta.version for delta in deltas} == {"v0"}
    assert sum(len(delta.token_ids) for delta in deltas) == 60
    assert (new.version, pinned.version) == ("v1", "v0")
    check(new, PROMPT)
    check(pinned, PROMPT)


async def test_a_candidate_is_served_when_it_is_asked_for_and_goes_live_later(engine: EmbeddedEngine) -> None:
    await engine.publish(publication("v1", live=False))
    assert (await whole(engine, ask(PROMPT, max_tokens=2))).version == "v0"
    assert (await whole(engine, ask(PROMPT, version="v1", max_tokens=2))).version == "v1"
    await engine.publish(publication("v1"))
    assert (await whole(engine, ask(PROMPT, max_tokens=2))).version == "v1"


async def test_what_cannot_be_loaded_changes_nothing(engine: EmbeddedEngine) -> None:
    with pytest.raises(EngineRefused, match="checksum"):
        await engine.publish(publication("v1", path="/broken"))
    await engine.publish(publication("v1"))
    with pytest.raises(EngineRefused, match="same bytes for ever") as refused:
        await engine.publish(Publication(version="v1", weights=folder_ref("/nowhere", "another")))
    assert refused.value.status == 409
    state = await engine.state()
    assert (state.versions, state.live_version) == (("v0", "v1"), "v1")


async def test_a_retired_version_finishes_what_it_began_and_is_freed(engine: EmbeddedEngine) -> None:
    await engine.publish(publication("v1"))
    async with aclosing(engine.generate(ask(PROMPT, max_tokens=60))) as old:
        deltas = [await anext(old)]
        await engine.publish(publication("v2"))
        await engine.retire("v1")
        with pytest.raises(EngineRefused, match="not loaded"):
            await whole(engine, ask(PROMPT, version="v1"))
        deltas += [delta async for delta in old]
    assert sum(len(delta.token_ids) for delta in deltas) == 60
    for version, status in (("v2", 409), ("v0", 409), ("v9", 404)):
        with pytest.raises(EngineRefused) as refused:
            await engine.retire(version)
        assert refused.value.status == status
    assert (await engine.state()).versions == ("v0", "v2")
    await whole(engine, ask([5], max_tokens=1))  # runs after the cache was cleaned
    assert all(name != "v1" for strand in engine._scheduler._strands._strands for _, name in strand.made_by)


async def test_loading_does_not_hold_up_answers() -> None:
    gate = asyncio.Event()
    loop = asyncio.get_running_loop()

    def slow(publication: Publication) -> EngineWeights:
        asyncio.run_coroutine_threadsafe(gate.wait(), loop).result()
        return loaded(publication)

    engine = make(load=slow)
    publishing = asyncio.ensure_future(engine.publish(publication("v1")))
    assert (await whole(engine, ask(PROMPT, max_tokens=20))).version == "v0"
    assert not publishing.done()
    gate.set()
    await publishing
    assert (await whole(engine, ask(PROMPT, max_tokens=2))).version == "v1"
    await engine.close()


async def test_a_hundred_publishes_under_32_streams_drop_and_mix_nothing() -> None:
    engine = make(max_active=16, max_queued=64)
    rng = random.Random(0)
    done = asyncio.Event()
    answers: list[tuple[list[int], list[Delta]]] = []

    async def talk(number: int) -> None:
        prompt = [number, *PROMPT]
        while not done.is_set():
            request = GenerateRequest(
                request_id=f"s{number}",
                token_ids=list(prompt),
                sampling=Sampling(max_tokens=6 + number % 5, temperature=1.0, seed=number),
            )
            deltas = await all_deltas(engine, request)
            answers.append((list(prompt), deltas))
            said = [token for delta in deltas for token in delta.token_ids]
            prompt = [*prompt, *said, number] if len(prompt) < 200 else [number, *PROMPT]

    async def publish() -> None:
        for number in range(1, 101):
            await engine.publish(publication(f"v{number}"))
            if number > 1:
                await engine.retire(f"v{number - 1}")
            await asyncio.sleep(rng.random() * 0.02)
        done.set()

    await asyncio.gather(publish(), *(talk(number) for number in range(32)))
    versions = set[str]()
    for prompt, deltas in answers:
        whole_answer = [token for delta in deltas for token in delta.token_ids]
        assert len(whole_answer) == 6 + prompt[0] % 5, "no answer is cut short"
        assert len({delta.version for delta in deltas}) == 1, "an answer is one version's"
        versions.add(deltas[0].version)
    for prompt, deltas in rng.sample(answers, 60):
        tokens = tuple(token for delta in deltas for token in delta.token_ids)
        logprobs = tuple(logprob for delta in deltas for logprob in delta.logprobs)
        check(Delta(token_ids=tokens, logprobs=logprobs, version=deltas[0].version), prompt)
    assert len(versions) > 20
    assert (await engine.state()).versions == ("v0", "v100")
    await engine.close()


async def test_scores_equal_a_plain_forward_and_a_shared_prefix_is_paid_once(engine: EmbeddedEngine) -> None:
    tails = [[1, 2, 3], [4, 5], [6], [1, 2, 9, 9]]
    request = ScoreRequest(
        request_id="s",
        sequences=tuple((*PROMPT, *tail) for tail in tails),
        starts=tuple(len(PROMPT) for _ in tails),
        top_logprobs=2,
        cache_salt="ann",
    )
    await engine.publish(publication("v1"))
    for version in ("v0", "v1"):
        scored = await engine.score(replace(request, version=version))
        for ids, result in zip(request.sequences, scored, strict=True):
            expected = rig.plain_logprobs(list(ids), len(PROMPT), rig.weights(version))
            assert result.logprobs == pytest.approx(expected, abs=5e-5)
            assert result.top_logprobs is not None
            assert [len(top) for top in result.top_logprobs] == [2] * len(expected)
    # Per version one strand for the prefix and what its forks left, not one whole prompt for each sequence.
    strands = engine._scheduler._strands._strands
    assert len(strands) <= 2 * len(tails)
    assert (await whole(engine, ask([*PROMPT, 1, 2], version="v0", max_tokens=1))).num_cached_tokens >= len(PROMPT) - 1


@pytest.mark.parametrize("num_shareable", [0, 20])
async def test_what_another_salt_asked_shows_nowhere(engine: EmbeddedEngine, num_shareable: int) -> None:
    """The same requests, beside somebody who said the very same before, and beside nobody: the same numbers.

    With the same answers: one that happens to begin as the next prompt goes on leaves a token more.
    """
    prompts = [PROMPT[:25], PROMPT, [*PROMPT, 7, 8], [*PROMPT[:30], 50, 51]]

    async def told(salt: str) -> list[int]:
        requests = (
            replace(ask(p, max_tokens=2, temperature=0.0, salt=salt), num_shareable=num_shareable) for p in prompts
        )
        return [(await whole(engine, request)).num_cached_tokens for request in requests]

    alone = await told("first")
    assert alone[0] == 0
    assert alone[1] >= 24
    assert await told("second") == alone


async def test_forgotten_words_are_found_by_nobody(engine: EmbeddedEngine) -> None:
    assert (await whole(engine, ask(PROMPT, max_tokens=2))).num_cached_tokens == 0
    async with aclosing(engine.generate(ask([*PROMPT, 5], max_tokens=400))) as running:
        await anext(running)
        await engine.forget_cache({"ann"})
        assert (await whole(engine, ask(PROMPT, max_tokens=2))).num_cached_tokens == 0, "nor those of a running answer"
        await engine.forget_cache({"ann"})
    assert (await whole(engine, ask([*PROMPT, 5, 6], max_tokens=2))).num_cached_tokens == 0


async def test_a_job_in_line_when_its_salt_is_forgotten_leaves_nothing() -> None:
    engine = make(max_active=1)
    first = asyncio.ensure_future(whole(engine, ask([3, *PROMPT], max_tokens=60, salt="bob")))
    waiting = asyncio.ensure_future(whole(engine, ask(PROMPT, max_tokens=2)))
    await asyncio.sleep(0)
    await engine.forget_cache({"ann"})
    assert (await first).finish_reason == (await waiting).finish_reason == "length"
    assert (await whole(engine, ask(PROMPT, max_tokens=2))).num_cached_tokens == 0
    assert (await whole(engine, ask([3, *PROMPT], max_tokens=2, salt="bob"))).num_cached_tokens > 0
    await engine.close()


async def test_a_request_without_a_salt_leaves_and_finds_nothing(engine: EmbeddedEngine) -> None:
    for _ in range(2):
        assert (await whole(engine, ask(PROMPT, max_tokens=2, salt=""))).num_cached_tokens == 0
    sequences = tuple((*PROMPT, *tail) for tail in ([1, 2, 3], [4, 5]))
    scored = ScoreRequest(request_id="s", sequences=sequences, starts=(len(PROMPT),) * 2)
    await engine.score(scored)
    await whole(engine, ask([9], max_tokens=1, salt=""))  # a step later
    assert len(engine._scheduler._strands) == 0


async def test_a_cancelled_score_leaves_nothing_behind(engine: EmbeddedEngine) -> None:
    request = ScoreRequest(
        request_id="s", sequences=tuple((i, *PROMPT) for i in range(40)), starts=tuple([1] * 40), priority=BACKGROUND
    )
    task = asyncio.ensure_future(engine.score(request))
    await asyncio.sleep(0.005)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert engine.num_requests == 0
    assert (await whole(engine, ask(PROMPT, max_tokens=3))).finish_reason == "length"


async def test_a_score_that_cannot_be_is_refused(engine: EmbeddedEngine) -> None:
    for sequences, version, code in (
        ((tuple(range(1, 60)) * 9,), None, "context_length_exceeded"),
        (((1, 2, rig.VOCAB),), None, "token_out_of_vocabulary"),
        (((1, 2, 3),), "v7", "version_not_found"),
    ):
        with pytest.raises(EngineRefused) as refused:
            await engine.score(ScoreRequest(request_id="s", sequences=sequences, starts=(1,), version=version))
        assert refused.value.code == code


async def test_a_failing_model_is_an_error_of_the_request(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = make(load=lambda publication: rig.weights(publication.version, seed=5))
    monkeypatch.setattr(rig.runner(5), "run", lambda pieces: (_ for _ in ()).throw(MemoryError("no memory")))
    await engine.publish(publication("v1", live=False))
    bad, good = await asyncio.gather(
        until_error(engine, ask(PROMPT, version="v1")), whole(engine, ask(PROMPT, max_tokens=8))
    )
    assert isinstance(bad[1], EngineError)
    assert "MemoryError" in str(bad[1])
    check(good, PROMPT)
    await engine.close()


async def test_a_version_that_is_scored_stays_until_the_last_sequence() -> None:
    freed: list[str] = []
    engine = make(load=lambda wanted: replace(loaded(wanted), free=lambda: freed.append("v1")))
    await engine.publish(publication("v1"))
    await engine.publish(publication("v2"))
    request = ScoreRequest(
        request_id="s", sequences=tuple((*PROMPT, i, 3) for i in range(30)), starts=(len(PROMPT),) * 30, version="v1"
    )
    scoring = asyncio.ensure_future(engine.score(request))
    await asyncio.sleep(0)
    await engine.retire("v1")
    for ids, scored in zip(request.sequences, await scoring, strict=True):
        expected = rig.plain_logprobs(list(ids), len(PROMPT), rig.weights("v1"))
        assert scored.logprobs == pytest.approx(expected, abs=5e-5)
    await whole(engine, ask([5], max_tokens=1))
    assert freed == ["v1"], "once, and not before the last sequence"
    await engine.close()


async def test_a_label_names_the_same_bytes_also_after_it_was_retired(engine: EmbeddedEngine) -> None:
    await engine.publish(publication("v1"))
    await engine.publish(publication("v2"))
    await engine.retire("v1")
    with pytest.raises(EngineRefused, match="same bytes for ever"):
        await engine.publish(Publication(version="v1", weights=folder_ref("/nowhere", "another")))
    await engine.publish(publication("v1"))
    assert (await engine.state()).live_version == "v1"


async def test_a_score_in_line_learns_that_the_engine_is_gone() -> None:
    engine = make(max_active=1)
    request = ScoreRequest(request_id="s", sequences=(tuple(PROMPT) * 8,), starts=(1,))
    scores = [asyncio.ensure_future(engine.score(request)) for _ in range(3)]
    await asyncio.sleep(0.002)
    await engine.close()
    results = await asyncio.wait_for(asyncio.gather(*scores, return_exceptions=True), 10)
    assert isinstance(results[-1], EngineLost)


async def test_a_publish_whose_caller_leaves_is_finished() -> None:
    gate = asyncio.Event()
    loop = asyncio.get_running_loop()

    def slow(wanted: Publication) -> EngineWeights:
        asyncio.run_coroutine_threadsafe(gate.wait(), loop).result()
        return loaded(wanted)

    engine = make(load=slow)
    publishing = asyncio.ensure_future(engine.publish(publication("v1")))
    await asyncio.sleep(0.01)
    publishing.cancel()
    gate.set()
    await engine.publish(publication("v2"))
    assert (await engine.state()).versions == ("v0", "v1", "v2")
    await engine.close()


async def test_a_persons_score_comes_before_a_background_score_that_came_first() -> None:
    engine = make(max_active=1)
    slow = ScoreRequest(request_id="gate", sequences=tuple((i, *PROMPT) for i in range(40)), starts=(1,) * 40)
    waiting = asyncio.ensure_future(engine.score(slow))
    await asyncio.sleep(0.01)
    await engine.score(ScoreRequest(request_id="me", sequences=((1, 2, 3),), starts=(1,), priority=PERSON))
    assert not waiting.done()
    await waiting
    await engine.close()


async def test_versions_beyond_the_room_are_brought_back_when_they_are_asked_for() -> None:
    """Each answer is by its own version, though memory holds two of six; the bytes are checked each time."""
    read: list[str] = []
    changed: set[str] = set()

    def load(publication: Publication) -> EngineWeights:
        read.append(publication.version)
        if publication.version in changed:
            raise EngineRefused("the checksum differs", code="version_unreadable")
        return rig.weights(publication.version)

    engine = make(load=load, max_adapters=2)
    labels = [f"v{number}" for number in range(1, 7)]
    for label in labels:
        await engine.publish(publication(label, live=False))
    assert engine.in_memory == ("v5", "v6")
    assert set((await engine.state()).versions) == {"v0", *labels}
    assert set((await engine.state()).checksums) == set(labels)
    asked = [*labels, *reversed(labels)]
    answers = await asyncio.gather(*(whole(engine, ask(PROMPT, version=label, max_tokens=5)) for label in asked))
    for label, answer in zip(asked, answers, strict=True):
        assert answer.version == label
        check(answer, PROMPT)
    assert len(engine.in_memory) == 2
    scored = await engine.score(
        ScoreRequest(request_id="s", sequences=(tuple(PROMPT),), starts=(3,), version="v1", temperature=1.0)
    )
    assert scored[0].logprobs == pytest.approx(rig.plain_logprobs(PROMPT, 3, rig.weights("v1")), abs=5e-5)

    gone = next(label for label in labels if label not in engine.in_memory)
    changed.add(gone)
    with pytest.raises(EngineRefused, match="checksum differs"):
        await whole(engine, ask(PROMPT, version=gone, max_tokens=5))
    assert [*engine.in_memory] == ["v1"], "room was made for it"
    await engine.retire(gone)
    await engine.retire(engine.in_memory[0])
    assert [*engine.in_memory] == []
    assert engine.num_requests == 0
    await engine.close()


async def test_what_an_engine_before_had_loaded_is_read_when_it_is_asked_for_if_room_is_short() -> None:
    """So a new worker with a thousand versions is ready in a moment."""
    read: list[str] = []

    def load(publication: Publication) -> EngineWeights:
        read.append(publication.version)
        return rig.weights(publication.version)

    engine = make(load=load, max_adapters=2)
    for number in range(1, 6):
        await engine.publish(replace(publication(f"v{number}", live=False), known=True))
    assert read == ["v1", "v2"]
    assert len((await engine.state()).versions) == 6
    answer = await whole(engine, ask(PROMPT, version="v5", max_tokens=4))
    check(answer, PROMPT)
    assert read == ["v1", "v2", "v5"]
    await engine.publish(publication("v6", live=False))
    assert read[-1] == "v6", "what nobody had loaded before is read at once"
    await engine.close()


async def test_a_slow_reader_holds_no_room_for_versions() -> None:
    engine = make(max_adapters=1)
    for label in ("v1", "v2"):
        await engine.publish(publication(label, live=False))
    async with aclosing(engine.generate(ask(PROMPT, version="v1", max_tokens=20))) as deltas:
        await anext(deltas)  # and reads no further
        assert (await whole(engine, ask(PROMPT, version="v2", max_tokens=3))).version == "v2"
    await engine.close()
