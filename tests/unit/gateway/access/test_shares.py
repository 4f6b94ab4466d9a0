"""Whose work is done next, what is refused, and that nobody works for who is gone."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from functools import partial

import pytest

from openclaw_rl.errors import RequestError
from openclaw_rl.gateway.access.shares import AT_ONCE, SMALL, IsWanted, Shares

LARGE = SMALL + 1
A_LITTLE = AT_ONCE + 1


@pytest.fixture
async def shares() -> AsyncIterator[Shares]:
    made = Shares(max_bytes=1000, num_threads=1)
    yield made
    made.close()


class Gate:
    """Work that goes on until it is let."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.open = threading.Event()

    def __call__(self, _: IsWanted) -> None:
        self.begun.set()
        assert self.open.wait(30)


def note(done: list[str], name: str, _: IsWanted) -> None:
    done.append(name)


async def until(event: threading.Event) -> None:
    assert await asyncio.get_running_loop().run_in_executor(None, event.wait, 30)


async def test_users_take_turns(shares: Shares) -> None:
    gate, done = Gate(), list[str]()
    blocked = asyncio.create_task(shares.run("ada", LARGE, gate))
    await until(gate.begun)
    tasks = [
        asyncio.create_task(shares.run(user, LARGE, partial(note, done, f"{user}{i}")))
        for user, many in (("ada", 4), ("bob", 2), ("eve", 1))
        for i in range(many)
    ]
    await asyncio.sleep(0)
    gate.open.set()
    await asyncio.gather(blocked, *tasks)
    assert done == ["ada0", "bob0", "eve0", "ada1", "bob1", "ada2", "ada3"]


async def test_small_work_does_not_wait_for_large_work(shares: Shares) -> None:
    gate = Gate()
    blocked = asyncio.create_task(shares.run("ada", LARGE, gate))
    await until(gate.begun)
    assert await shares.run("bob", A_LITTLE, lambda _: "done") == "done"
    gate.open.set()
    await blocked


async def test_work_of_a_moment_is_done_at_once(shares: Shares) -> None:
    here = threading.get_ident()
    assert await shares.run("ada", AT_ONCE, lambda _: threading.get_ident()) == here
    assert await shares.run("ada", A_LITTLE, lambda _: threading.get_ident()) != here


async def test_who_is_gone_is_not_worked_for(shares: Shares) -> None:
    begun, told, done = threading.Event(), threading.Event(), list[str]()

    def long(is_wanted: IsWanted) -> None:
        begun.set()
        while is_wanted():
            pass
        told.set()

    running = asyncio.create_task(shares.run("ada", LARGE, long))
    await until(begun)
    waiting = asyncio.create_task(shares.run("ada", LARGE, lambda _: done.append("nobody wanted this")))
    after = asyncio.create_task(shares.run("ada", LARGE, lambda _: done.append("this")))
    await asyncio.sleep(0)
    waiting.cancel()
    running.cancel()
    await until(told)
    await after
    assert done == ["this"]


async def test_closing_ends_what_runs(shares: Shares) -> None:
    begun, told = threading.Event(), threading.Event()

    def long(is_wanted: IsWanted) -> None:
        begun.set()
        while is_wanted():
            pass
        told.set()

    running = asyncio.create_task(shares.run("ada", LARGE, long))
    await until(begun)
    shares.close()
    await until(told)
    running.cancel()


async def test_errors_are_those_of_the_work(shares: Shares) -> None:
    def broken(_: IsWanted) -> None:
        raise RequestError("no")

    with pytest.raises(RequestError, match="no"):
        await shares.run("ada", LARGE, broken)
    assert await shares.run("ada", LARGE, lambda _: 1) == 1


async def test_nobody_holds_more_than_his_share(shares: Shares) -> None:
    with shares.holding("ada") as held:
        held.grow(500)
        with pytest.raises(RequestError) as refused:
            held.grow(1)
        assert (refused.value.status, refused.value.retry_after_s) == (429, 2)
        with shares.holding("bob") as others:
            others.grow(400)
            with shares.holding("eve") as too_late, pytest.raises(RequestError) as full:
                too_late.grow(101)
            assert (full.value.status, full.value.retry_after_s) == (503, 2)
    with shares.holding("eve") as later:
        later.grow(500)
