"""Continuous batching over a real tiny network: exact whatever else runs, fair, and never stuck."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from openclaw_rl.engine.embedded import sampling
from openclaw_rl.engine.embedded.cache import MIN_OLDER
from openclaw_rl.engine.embedded.runner import NetworkRunner, SequencePiece
from openclaw_rl.engine.embedded.scheduler import AnswerJob, EngineWeights, Job, ReadingJob, Result
from openclaw_rl.errors import EngineError
from openclaw_rl.model.adapter import AdapterWeights
from openclaw_rl.types import BACKGROUND, PERSON, Delta, Scored
from tests.unit.engine.embedded import rig

PROMPT = [7, 3, 11, 25, 4, 4, 19, 33, 2, 50, 41, 8, 9, 1, 30, 22, 17, 5, 6, 44, 21, 13]


def exact(job: Job, tokens: Sequence[int], logprobs: Sequence[float]) -> None:
    """The log-probs are those of one plain forward pass over the whole sequence."""
    start = len(job.token_ids) - len(tokens)
    assert job.token_ids[start:] == list(tokens)
    assert logprobs == pytest.approx(rig.plain_logprobs(job.token_ids, start, job.weights), abs=2e-5)


def test_a_greedy_answer_is_the_argmax_of_a_plain_forward() -> None:
    job = rig.answer(PROMPT, max_tokens=10)
    tokens, logprobs = rig.sampled(rig.run(rig.scheduler(prefill_chunk=5), job)[job])
    expected = list(PROMPT)
    for _ in range(10):
        expected.append(int(rig.plain_logits(expected, rig.weights())[-1].argmax()))
    assert tokens == expected[len(PROMPT) :]
    exact(job, tokens, logprobs)


def test_a_stop_token_ends_the_answer_and_so_does_the_length() -> None:
    free = rig.answer(PROMPT, max_tokens=6)
    tokens, _ = rig.sampled(rig.run(rig.scheduler(), free)[free])
    stopped = rig.answer(PROMPT, max_tokens=6, stop=(tokens[2],))
    results = rig.run(rig.scheduler(), stopped)[stopped]
    cut = tokens.index(tokens[2]) + 1
    assert rig.sampled(results)[0] == tokens[:cut]
    assert [delta.finish_reason for _, delta in results if isinstance(delta, Delta)] == [None] * (cut - 1) + ["stop"]
    last = rig.run(rig.scheduler(), free := rig.answer(PROMPT, max_tokens=6))[free][-1][1]
    assert isinstance(last, Delta)
    assert last.finish_reason == "length"


def test_the_same_seed_gives_the_same_answer_in_any_company() -> None:
    alone = rig.answer(PROMPT, max_tokens=12, temperature=1.0, seed=5)
    expected = rig.sampled(rig.run(rig.scheduler(), alone)[alone])[0]
    job = rig.answer(PROMPT, max_tokens=12, temperature=1.0, seed=5)
    others = [
        rig.answer([*PROMPT[:i], i], rig.weights(f"v{i % 3}"), max_tokens=20, temperature=1.0, seed=i, priority=i % 2)
        for i in range(1, 12)
    ]
    assert rig.sampled(rig.run(rig.scheduler(max_active=4), *others[:6], job, *others[6:])[job])[0] == expected


def test_a_long_prompt_holds_up_running_answers_by_one_chunk_at_most() -> None:
    scheduled = rig.scheduler(prefill_chunk=16)
    writing = [rig.answer([i, *PROMPT[:4]], max_tokens=200) for i in range(3)]
    for job in writing:
        scheduled.submit(job)
    while any(len(job.token_ids) < 7 for job in writing):
        scheduled.step()
    long = rig.answer([*range(60)] * 5, max_tokens=1)
    scheduled.submit(long)
    for _ in range(300 // 16):
        before = 0 if long.strand is None else long.strand.length
        got = [job for job, _ in scheduled.step()]
        assert set(writing) <= set(got), "every answer grows in every step"
        assert long.strand is not None
        assert 0 < long.strand.length - before <= 16


def test_a_person_comes_before_a_background_job_that_came_first() -> None:
    scheduled = rig.scheduler(max_active=1, prefill_chunk=64)
    background = rig.answer(PROMPT, max_tokens=50, name="judge", priority=BACKGROUND)
    scheduled.submit(background)
    scheduled.step()
    scheduled.step()
    written = len(background.token_ids)
    person = rig.answer([9, 9, 9], max_tokens=3, priority=PERSON)
    scheduled.submit(person)
    served = [[job for job, _ in scheduled.step()] for _ in range(5)]
    assert served == [[person], [person], [background], [person], [background]], "but for its share, each fifth step"
    assert len(background.token_ids) == written + 2
    results = rig.run(scheduled)
    tokens, logprobs = rig.sampled(results[background])
    exact(background, tokens, logprobs)


@pytest.mark.parametrize(("launch_bound", "chunk"), [(True, 16), (False, 64)])
def test_a_background_prompt_takes_a_smaller_chunk_while_a_person_reads_along(
    monkeypatch: pytest.MonkeyPatch, launch_bound: bool, chunk: int
) -> None:
    monkeypatch.setattr(NetworkRunner, "is_launch_bound", launch_bound)
    scheduled = rig.scheduler(prefill_chunk=chunk)
    person, background = rig.answer([1, 2], max_tokens=50), rig.answer([*range(60)], priority=BACKGROUND)
    scheduled.submit(person)
    scheduled.step()
    scheduled.submit(background)
    scheduled.step()
    assert background.strand is not None
    assert background.strand.length == 4
    scheduled.cancel(person)
    scheduled.step()
    assert background.strand.length == min(60, 4 + chunk)


def test_where_each_prompt_has_its_price_running_answers_wait_for_one_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(NetworkRunner, "is_launch_bound", True)
    scheduled, passes, run = rig.scheduler(prefill_chunk=64), list[list[int]](), rig.runner(0).run

    def counted(pieces: Sequence[SequencePiece]) -> list[Tensor]:
        passes.append([len(piece.token_ids) for piece in pieces])
        return run(pieces)

    monkeypatch.setattr(rig.runner(0), "run", counted)
    jobs = [rig.answer([i, *PROMPT[:4]], max_tokens=9) for i in range(5)]
    for job in jobs[:2]:
        scheduled.submit(job)
    scheduled.step()
    assert passes == [[5, 5]], "nobody waits for a next token: all at once"
    for job in jobs[2:]:
        scheduled.submit(job)
    for num_writing in (2, 3, 4):
        passes.clear()
        scheduled.step()
        assert passes == [[1] * num_writing, [5]]
    rig.run(scheduled)
    alone = [rig.answer(job.token_ids[:5], max_tokens=9) for job in jobs]
    rig.run(rig.scheduler(), *alone)
    assert [job.token_ids for job in jobs] == [job.token_ids for job in alone]


def test_where_each_prompt_has_its_price_short_sequences_are_scored_side_by_side(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(NetworkRunner, "is_launch_bound", True)
    scheduled, passes, read = (
        rig.scheduler(max_active=2, prefill_chunk=400),
        list[list[int]](),
        NetworkRunner.read_whole,
    )

    def counted(
        self: NetworkRunner, sequences: Sequence[Sequence[int]], adapter: AdapterWeights | None
    ) -> list[Tensor]:
        passes.append([len(ids) for ids in sequences])
        return read(self, sequences, adapter)

    monkeypatch.setattr(NetworkRunner, "read_whole", counted)
    versions = [rig.weights("v0"), rig.weights("v1")]
    short = [rig.reading([i, *PROMPT[: 4 * i + 1]], 1 + i, versions[i % 2]) for i in range(6)]
    long = rig.reading([*range(60)] * 5, 290)
    results = rig.run(scheduled, *short, long)
    assert passes == [[1, 9, 17], [5, 13, 21]], "those of one version together"
    for job in (*short, long):
        ((_, scored),) = results[job]
        assert isinstance(scored, Scored)
        assert scored.logprobs == pytest.approx(rig.plain_logprobs(job.token_ids, job.start, job.weights), abs=2e-5)
    passes.clear()
    person = rig.answer(PROMPT, max_tokens=9)
    scheduled.submit(person)
    scheduled.step()
    many = [rig.reading([i, *PROMPT], 3, versions[0]) for i in range(9)]
    for job in many:
        scheduled.submit(job)
    scheduled.step()
    assert passes == [[22] * 4], "a quarter of the chunk, for a person reads along"
    assert len(person.token_ids) == len(PROMPT) + 2
    rig.run(scheduled)
    assert [len(one) for one in passes] == [4, 4, 1]


def test_a_failure_of_sequences_side_by_side_is_theirs_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NetworkRunner, "is_launch_bound", True)

    def failing(self: NetworkRunner, sequences: Sequence[Sequence[int]], adapter: AdapterWeights | None) -> None:
        raise torch.OutOfMemoryError

    monkeypatch.setattr(NetworkRunner, "read_whole", failing)
    reading, answer = rig.reading(PROMPT, 3), rig.answer(PROMPT, max_tokens=3)
    results = rig.run(rig.scheduler(), reading, answer)
    ((_, failure),) = results[reading]
    assert isinstance(failure, EngineError)
    exact(answer, *rig.sampled(results[answer]))


def test_a_cancelled_job_makes_no_further_step_and_its_prefix_stays() -> None:
    scheduled = rig.scheduler()
    job, other = rig.answer(PROMPT, max_tokens=50), rig.answer([5, 6], max_tokens=4)
    scheduled.submit(job)
    scheduled.submit(other)
    for _ in range(3):
        scheduled.step()
    scheduled.cancel(job)
    scheduled.cancel(job)
    assert all(done is other for done, _ in scheduled.step())
    again = rig.answer([*PROMPT, 1, 2], max_tokens=1)
    ((_, delta),) = rig.run(scheduled, again)[again]
    assert isinstance(delta, Delta)
    assert delta.num_cached_tokens == len(PROMPT)


def test_turns_of_a_session_are_read_once_and_forks_do_not_disturb_each_other() -> None:
    scheduled = rig.scheduler()
    first = rig.answer(PROMPT, max_tokens=6)
    tokens, _ = rig.sampled(rig.run(scheduled, first)[first])
    history = [*PROMPT, *tokens]
    jobs = [
        rig.answer([*history, 1, 2, 3], max_tokens=5),
        rig.answer([*history, 4, 5], max_tokens=5),
        rig.answer([*history[:-3], 6], max_tokens=5),
    ]
    results = rig.run(scheduled, *jobs)
    for job in jobs:
        exact(job, *rig.sampled(results[job]))
    # The last sampled token was never fed, so of the history all but one is known.
    assert [job.num_cached for job in jobs] == [len(history) - 1, len(history) - 1, len(history) - 3]


def test_when_the_cache_is_full_the_last_in_line_waits_and_is_exact_nevertheless() -> None:
    scheduled = rig.scheduler(max_tokens=64 * 3)
    jobs = [rig.answer([i, *PROMPT], max_tokens=100) for i in range(4)]
    results = rig.run(scheduled, *jobs, max_steps=2000)
    for job in jobs:
        tokens, logprobs = rig.sampled(results[job])
        assert len(tokens) == 100
        exact(job, tokens, logprobs)


def test_a_paused_background_job_does_not_keep_memory_from_a_person() -> None:
    scheduled = rig.scheduler(max_tokens=128, max_active=1)
    background = rig.answer(PROMPT, max_tokens=80, priority=BACKGROUND)
    scheduled.submit(background)
    for _ in range(60):
        scheduled.step()
    person = rig.answer([9, 9, 9], max_tokens=100)
    results = rig.run(scheduled, person)
    exact(person, *rig.sampled(results[person]))
    assert len(background.token_ids) == len(PROMPT) + 80
    start = len(PROMPT)
    assert background.token_ids[start:] == _greedy(PROMPT, 80)


def _greedy(prompt: Sequence[int], count: int) -> list[int]:
    job = rig.answer(prompt, max_tokens=count)
    return rig.sampled(rig.run(rig.scheduler(), job)[job])[0]


def test_different_adapters_and_networks_share_a_step() -> None:
    jobs = [rig.answer(PROMPT, rig.weights(label, seed=seed), max_tokens=8) for label, seed in
            [("v0", 0), ("v1", 0), ("v2", 0), ("v1", 0), ("v9", 7)]]  # fmt: skip
    scheduled = rig.scheduler(prefill_chunk=200)
    results = rig.run(scheduled, *jobs)
    for job in jobs:
        exact(job, *rig.sampled(results[job]))
    answers = {tuple(job.token_ids) for job in jobs}
    assert len(answers) >= 3, "the adapters make a difference"
    assert jobs[1].token_ids == jobs[3].token_ids


def test_after_an_update_exact_computes_the_prefix_anew_and_reuse_keeps_it() -> None:
    long = PROMPT * (MIN_OLDER // len(PROMPT) + 1)
    for rule, cached in (("exact", 0), ("reuse(1)", len(long))):
        scheduled = rig.scheduler()
        rig.run(scheduled, rig.answer(long, rig.weights("v0", rule), max_tokens=1))
        job = rig.answer([*long, 3, 1], rig.weights("v1", rule), max_tokens=4)
        results = rig.run(scheduled, job)
        assert job.num_cached == cached
        if rule == "exact":
            exact(job, *rig.sampled(results[job]))
        scheduled.submit(stale := rig.answer([*long, 3, 1], rig.weights("v2", rule), max_tokens=1))
        scheduled.step()
        assert stale.num_cached == 0, "the oldest part is two versions old"
        measured = rig.answer([*long, 3, 1], job.weights, max_tokens=4, exact=True)
        exact(measured, *rig.sampled(rig.run(scheduled, measured)[measured]))
        scored = rig.reading([*long, 3, 1], len(long), job.weights)
        ((_, result),) = rig.run(scheduled, scored)[scored]
        assert isinstance(result, Scored)
        assert result.logprobs == pytest.approx(rig.plain_logprobs(scored.token_ids, len(long), job.weights), abs=2e-5)


def test_a_row_of_nan_fails_alone() -> None:
    broken = rig.weights("v1")
    poisoned = rig.adapter.__wrapped__(9)
    for parameter in poisoned.parameters():
        parameter.fill_(float("nan"))
    bad = rig.answer(PROMPT, EngineWeights("v9", broken.runner, poisoned, broken.may_reuse), max_tokens=4)
    scored = rig.reading(PROMPT, 2, bad.weights)
    good = rig.answer(PROMPT, max_tokens=4)
    results = rig.run(rig.scheduler(), bad, good, scored)
    exact(good, *rig.sampled(results[good]))
    for job in (bad, scored):
        ((_, error),) = results[job]
        assert isinstance(error, EngineError)
        assert "NaN" in str(error)


def test_a_pass_that_fails_ends_its_own_jobs_only(monkeypatch: pytest.MonkeyPatch) -> None:
    other = rig.weights(seed=3)
    monkeypatch.setattr(other.runner, "run", lambda pieces: (_ for _ in ()).throw(MemoryError("no memory")))
    bad, good = rig.answer(PROMPT, other), rig.answer(PROMPT)
    results = rig.run(rig.scheduler(), bad, good)
    ((_, error),) = results[bad]
    assert isinstance(error, EngineError)
    assert "MemoryError" in str(error)
    exact(good, *rig.sampled(results[good]))


def test_memory_that_is_not_there_costs_one_job() -> None:
    scheduled = rig.scheduler()
    good, bad = rig.answer(PROMPT), rig.answer([9, 8, 7])
    scheduled.submit(good)
    scheduled.step()
    made = scheduled._strands._new_storage
    scheduled._strands._new_storage = lambda capacity: (_ for _ in ()).throw(RuntimeError("out of memory"))
    scheduled.submit(bad)
    results = scheduled.step()
    scheduled._strands._new_storage = made
    assert [type(result) for job, result in results if job is bad] == [EngineError]
    found = rig.run(scheduled)
    assert len(good.token_ids) == len(PROMPT) + 8
    assert bad not in found


def test_a_score_that_is_done_is_told_although_drawing_fails_beside_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "draw", lambda *_: (_ for _ in ()).throw(MemoryError("no memory")))
    scored, answer = rig.reading([1, 2, 3], 1), rig.answer([4, 5, 6])
    results = rig.run(rig.scheduler(), answer, scored)
    assert [type(result) for _, result in results[scored]] == [Scored]
    assert [type(result) for _, result in results[answer]] == [EngineError]


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_scores_are_those_of_a_plain_forward(temperature: float) -> None:
    given = rig.weights("v1")
    job = rig.reading(PROMPT, 4, given, temperature=temperature, top=3)
    ((_, scored),) = rig.run(rig.scheduler(prefill_chunk=5), job)[job]
    assert isinstance(scored, Scored)
    assert scored.logprobs == pytest.approx(rig.plain_logprobs(PROMPT, 4, given, temperature), abs=2e-5)
    plain = (rig.plain_logits(PROMPT[:-1], given) / temperature).log_softmax(-1)
    assert scored.top_logprobs is not None
    for i, tops in enumerate(scored.top_logprobs):
        best = plain[3 + i].topk(3)
        assert [top.token_id for top in tops] == best.indices.tolist()
        assert [top.logprob for top in tops] == pytest.approx(best.values.tolist(), abs=2e-5)


def test_scores_use_a_prefix_that_is_known_but_never_skip_a_wanted_position() -> None:
    scheduled = rig.scheduler()
    rig.run(scheduled, rig.answer(PROMPT, max_tokens=1))
    cached = []
    for start in (1, 10, len(PROMPT)):
        job = rig.reading([*PROMPT, 1, 2, 3], start)
        ((_, scored),) = rig.run(scheduled, job)[job]
        assert isinstance(scored, Scored)
        assert scored.logprobs == pytest.approx(rig.plain_logprobs([*PROMPT, 1, 2, 3], start, job.weights), abs=2e-5)
        cached.append(job.num_cached)
    assert cached == [0, 0, len(PROMPT) - 1]


@settings(max_examples=40)
@given(st.data())
def test_random_arrivals_cancels_forks_and_updates_stay_exact(data: st.DataObject) -> None:
    """Little memory, few places, many versions; every token is compared with a plain forward pass."""
    scheduled = rig.scheduler(
        max_tokens=64 * data.draw(st.integers(3, 8)),
        max_active=data.draw(st.integers(1, 4)),
        prefill_chunk=data.draw(st.integers(1, 20)),
    )
    texts, live, jobs = [list(PROMPT)], 0, list[Job]()
    got: dict[Job, list[Result]] = {}
    for _ in range(data.draw(st.integers(1, 12))):
        match data.draw(st.sampled_from(["ask", "ask", "score", "cancel", "publish"])):
            case "publish":
                live = data.draw(st.integers(0, 3))
            case "cancel" if jobs:
                scheduled.cancel(data.draw(st.sampled_from(jobs)))
            case kind:
                text = data.draw(st.sampled_from(texts))
                prompt = [
                    *text[: data.draw(st.integers(1, len(text)))],
                    *data.draw(st.lists(st.integers(0, 59), max_size=6)),
                ]
                of_another_network = data.draw(st.integers(0, 2)) == 2
                given_weights = rig.weights(f"v{live + 10}", seed=7) if of_another_network else rig.weights(f"v{live}")
                priority = data.draw(st.integers(0, 1))
                job: Job
                if kind == "score" and len(prompt) > 1:
                    job = rig.reading(
                        prompt, data.draw(st.integers(1, len(prompt) - 1)), given_weights, priority=priority
                    )
                else:
                    options = {"max_tokens": data.draw(st.integers(1, 12)), "temperature": 1.0, "seed": len(jobs)}
                    job = rig.answer(prompt, given_weights, priority=priority, **options)  # type: ignore[arg-type]
                jobs.append(job)
                scheduled.submit(job)
        for _ in range(data.draw(st.integers(0, 4))):
            for job, result in scheduled.step():
                got.setdefault(job, []).append((job, result))
                if isinstance(job, AnswerJob) and job.over:
                    texts.append(job.token_ids[:120])
    for job, results in rig.run(scheduled).items():
        got.setdefault(job, []).extend(results)
    for job, results in got.items():
        if isinstance(job, ReadingJob):
            ((_, scored),) = results
            assert isinstance(scored, Scored)
            expected = rig.plain_logprobs(job.token_ids, job.start, job.weights)
            assert scored.logprobs == pytest.approx(expected, abs=5e-5)
        else:
            tokens, logprobs = rig.sampled(results)
            start = len(job.token_ids) - len(tokens)
            expected = rig.plain_logprobs(job.token_ids, start, job.weights)
            assert logprobs == pytest.approx(expected, abs=5e-5)


def test_people_take_turns_however_many_requests_one_of_them_has() -> None:
    """The clock is the scheduler's own steps: forty answers of one person wait, and seven others ask one thing each."""
    scheduled = rig.scheduler(max_active=2)
    crowd = [rig.answer([9, number], max_tokens=5, party="greedy") for number in range(40)]
    for job in crowd:
        scheduled.submit(job)
    scheduled.step()
    others = [rig.answer([8, number], max_tokens=5, party=f"p{number}") for number in range(7)]
    for job in others:
        scheduled.submit(job)
    ended: list[Job] = []
    while len(ended) < 47:
        ended += [job for job, result in scheduled.step() if isinstance(result, Delta) and result.finish_reason]
    last = max(ended.index(job) for job in others)
    assert last < 2 + 1 + 7, "two that ran, one more of the crowd, and the seven"
    assert [job for job in ended if job in crowd] == crowd, "one person's own come in their order"


def test_a_person_of_twice_the_weight_has_twice_as_many_answers_begun() -> None:
    scheduled = rig.scheduler(max_active=1)
    jobs = [
        rig.answer([n], max_tokens=2, party=party, weight=w) for n in range(12) for party, w in (("a", 2), ("b", 1))
    ]
    for job in jobs:
        scheduled.submit(job)
    ended: list[Job] = []
    while len(ended) < 12:
        ended += [job for job, result in scheduled.step() if isinstance(result, Delta) and result.finish_reason]
    assert sum(job.party == "a" for job in ended) == 8
