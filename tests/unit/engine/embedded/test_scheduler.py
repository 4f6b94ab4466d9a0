"""The scheduler over a stepper that counts instead of computing."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from contextlib import aclosing
from dataclasses import dataclass, field

import pytest

from openclaw_rl.engine.embedded.scheduler import EmbeddedEngine
from openclaw_rl.errors import EngineError, EngineLost, EngineRefused
from openclaw_rl.types import Delta, EngineState, GenerateRequest
from tests.unit.engine.prompts import all_deltas, ask, until_error, whole

STATE = EngineState(
    model="counting", versions=("v0",), live_version="v0", context_window=1000, device="none", dtype="none"
)


@dataclass
class Counting:
    """An answer that counts upward from the length of its prompt."""

    name: str
    num_left: int
    next_token: int
    prefill: int


@dataclass
class CountingStepper:
    """Reads two prompt tokens a step. `gate` holds the model's thread; `log` is the order of the steps."""

    state: EngineState = STATE
    gate: threading.Event = field(default_factory=threading.Event)
    log: list[str] = field(default_factory=list)
    num_steps: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    begun: list[weakref.ref[Counting]] = field(default_factory=list)

    def begin(self, request: GenerateRequest, version: str, max_tokens: int) -> Counting:
        num_prompt = len(request.token_ids)
        counting = Counting(request.request_id, max_tokens, num_prompt, num_prompt)
        self.begun.append(weakref.ref(counting))
        return counting

    def advance(self, generation: Counting) -> Delta | None:
        self.gate.wait()
        self.log.append(generation.name)
        self.num_steps.release()
        if generation.name == "broken" and generation.num_left == 2:
            raise MemoryError
        if generation.name == "refused":
            raise EngineError("the model computed NaN")
        generation.prefill -= 2
        if generation.prefill > 0:
            return None
        generation.next_token += 1
        generation.num_left -= 1
        return Delta(
            token_ids=(generation.next_token - 1,),
            logprobs=(-0.5,),
            version="v0",
            finish_reason="length" if generation.num_left == 0 else None,
        )


@pytest.fixture
def stepper() -> CountingStepper:
    stepper = CountingStepper()
    stepper.gate.set()
    return stepper


def request(name: str, num_prompt: int = 2, max_tokens: int = 4) -> GenerateRequest:
    return ask(range(num_prompt), name, max_tokens=max_tokens)


async def test_answers_take_turns_and_stay_apart(stepper: CountingStepper) -> None:
    engine = EmbeddedEngine(stepper)
    a, b = await asyncio.gather(whole(engine, request("a", 2, 3)), whole(engine, request("b", 6, 3)))
    assert a.token_ids == (2, 3, 4)
    assert b.token_ids == (6, 7, 8)
    assert stepper.log[:6] == ["a", "b", "a", "b", "a", "b"]
    await engine.close()


async def test_only_so_many_are_active_and_the_rest_wait_in_line(stepper: CountingStepper) -> None:
    engine = EmbeddedEngine(stepper, max_active=2)
    answers = await asyncio.gather(*(whole(engine, request(name)) for name in "abc"))
    assert [answer.token_ids for answer in answers] == [(2, 3, 4, 5)] * 3
    assert stepper.log.index("c") == 8
    await engine.close()


async def test_it_rests_and_works_again(stepper: CountingStepper) -> None:
    engine = EmbeddedEngine(stepper)
    for name in ("first", "second"):
        assert (await whole(engine, request(name))).finish_reason == "length"
    assert engine.num_requests == 0
    await engine.close()


async def test_the_loop_is_free_while_the_model_computes(stepper: CountingStepper) -> None:
    engine = EmbeddedEngine(stepper)
    stepper.gate.clear()
    task = asyncio.ensure_future(whole(engine, request("a")))
    assert (await asyncio.wait_for(engine.state(), 5)).model == "counting"
    await asyncio.sleep(0.01)
    assert not task.done()
    stepper.gate.set()
    assert (await task).token_ids == (2, 3, 4, 5)
    await engine.close()


async def test_tokens_pile_up_behind_a_slow_reader(stepper: CountingStepper) -> None:
    engine = EmbeddedEngine(stepper)
    async with aclosing(engine.generate(request("a", max_tokens=50))) as deltas:
        first = await anext(deltas)
        for _ in range(50):
            await asyncio.to_thread(stepper.num_steps.acquire)
        rest = [delta async for delta in deltas]
    assert len(rest) <= 2
    assert first.token_ids + sum((d.token_ids for d in rest), ()) == tuple(range(2, 52))
    await engine.close()


async def test_a_reader_that_leaves_frees_its_place(stepper: CountingStepper) -> None:
    engine = EmbeddedEngine(stepper, max_active=1)
    async with aclosing(engine.generate(request("gone", max_tokens=900))) as deltas:
        await anext(deltas)
    assert (await whole(engine, request("next"))).token_ids == (2, 3, 4, 5)
    assert engine.num_requests == 0
    gc.collect()
    assert stepper.begun[0]() is None, "the cache of a cancelled answer is freed"
    assert len([name for name in stepper.log if name == "gone"]) < 10
    await engine.close()


async def test_a_cancelled_prompt_is_not_read_to_its_end(stepper: CountingStepper) -> None:
    engine = EmbeddedEngine(stepper)
    stepper.gate.clear()
    task = asyncio.ensure_future(whole(engine, request("long", num_prompt=900)))
    await asyncio.sleep(0.01)
    task.cancel()
    await asyncio.wait((task,))
    stepper.gate.set()
    await whole(engine, request("next"))
    assert stepper.log.count("long") <= 1
    await engine.close()


@pytest.mark.parametrize(("name", "message"), [("broken", "MemoryError"), ("refused", "NaN")])
async def test_a_failing_answer_does_not_end_the_others(stepper: CountingStepper, name: str, message: str) -> None:
    engine = EmbeddedEngine(stepper)
    (tokens, error), good = await asyncio.gather(
        until_error(engine, request(name)), whole(engine, request("good", max_tokens=8))
    )
    assert message in str(error)
    assert tokens == ([2, 3] if name == "broken" else [])
    assert good.token_ids == tuple(range(2, 10))
    await engine.close()


async def test_what_does_not_fit_is_refused_before_the_model_sees_it(stepper: CountingStepper) -> None:
    engine = EmbeddedEngine(stepper)
    with pytest.raises(EngineRefused):
        await whole(engine, request("a", num_prompt=1000))
    assert not stepper.begun
    await engine.close()


async def test_closing_ends_what_runs(stepper: CountingStepper) -> None:
    engine = EmbeddedEngine(stepper)
    stepper.gate.clear()
    task = asyncio.ensure_future(until_error(engine, request("a")))
    await asyncio.sleep(0.01)
    closing = asyncio.ensure_future(engine.close())
    await asyncio.sleep(0)
    stepper.gate.set()
    await closing
    assert isinstance((await task)[1], EngineLost)


async def test_all_deltas_end_with_one_finish_reason(stepper: CountingStepper) -> None:
    engine = EmbeddedEngine(stepper)
    deltas = await all_deltas(engine, request("a"))
    assert [delta.finish_reason for delta in deltas][-1] == "length"
    assert all(delta.finish_reason is None for delta in deltas[:-1])
    await engine.close()
