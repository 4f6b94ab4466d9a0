"""A reward function of the user's own -> a judge.

    evaluation: {judge: function, judge_function: "rewards.py:CustomRewardModel"}

The name leads to a function `(prompt, response, next_feedback) -> number`, or to a class or object with
`compute_reward(prompt, response, next_feedback)` or `batch_compute_rewards([{prompt, response, feedback}, …])`; a class
that takes an argument is made with `evaluation.judge_path`. The number is the reward, as it is: 0.37 trains with 0.37.
Its sign is the vote, 0 is neutral, None abstains; everything else is a failure.

It is asked in threads of its own, because it may take its time or never return, and chat must not notice. Coroutines
run to their end there, each in a fresh event loop. What it prints or keeps is its own business.
"""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import math
import threading
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any, TypedDict

from openclaw_rl.errors import ConfigError
from openclaw_rl.plugins import load_named
from openclaw_rl.types import Evidence, Message, Score, Verdict, Vote

MAX_STUCK = 4
"""Calls past their time limit that may still be running; a thread cannot be ended from outside."""
_MAX_BATCH = 64
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class Item(TypedDict):
    """One turn as `batch_compute_rewards` gets it."""

    prompt: str
    response: str
    feedback: str


Batched = Callable[[list[Item]], Any]


class FunctionJudge:
    """`protocols.Judge` over the function that `path` names; `ConfigError` if there is none."""

    name = "function"

    def __init__(self, path: str, *, checkpoint: Path | None = None, timeout_s: float = 60.0) -> None:
        module, target = load_named(path, "evaluation.judge_function")
        self.prompt_version = f"{path.rpartition(':')[2]}@{_digest(module)}"
        self._batched, self._max_batch = _callable(_made(target, path, checkpoint), path)
        self._timeout_s = timeout_s
        self._waiting: list[tuple[Item, asyncio.Future[Any]]] = []
        self._turn = asyncio.Lock()
        self._num_stuck = 0

    async def judge(self, evidence: Evidence) -> Verdict:
        """The function's word. Turns that wait while it works are given to it together, if it takes batches."""
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        entry = (_item(evidence), answer)
        self._waiting.append(entry)
        try:
            while not answer.done():
                async with self._turn:
                    if not answer.done():
                        await self._serve_waiting()
        finally:
            if entry in self._waiting:
                self._waiting.remove(entry)
        return _verdict(answer.result())

    def forget(self) -> None:
        """Nothing is kept."""

    async def close(self) -> None:
        """Nothing to let go of; a stuck call dies with the process."""

    async def _serve_waiting(self) -> None:
        """Answers those that have waited longest, as many as go into one call."""
        batch = self._waiting[: self._max_batch]
        del self._waiting[: len(batch)]
        try:
            rewards = await self._call([item for item, _ in batch])
        except _Failed as failure:
            rewards = [failure] * len(batch)
        except asyncio.CancelledError:
            self._waiting[:0] = batch  # only who asked is cancelled; the next in line asks for the others again
            raise
        for (_, answer), reward in zip(batch, rewards, strict=True):
            if not answer.done():
                answer.set_result(reward)

    async def _call(self, items: list[Item]) -> list[Any]:
        """The rewards, from a thread that holds nothing up: not chat, not the end of the process."""
        if self._num_stuck >= MAX_STUCK:
            raise _Failed(f"{self._num_stuck} calls of the function have not returned; restart when it is mended")
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[list[Any] | BaseException] = loop.create_future()

        def settle(result: list[Any] | BaseException) -> None:
            if outcome.cancelled():
                self._num_stuck -= 1
            else:
                outcome.set_result(result)

        def work() -> None:
            try:
                result: list[Any] | BaseException = _rewards(self._batched(items), len(items))
            except BaseException as error:  # whatever a stranger's code does is a failed vote
                result = error
            with suppress(RuntimeError):  # the loop has ended meanwhile
                loop.call_soon_threadsafe(settle, result)

        # Not `to_thread`: its few threads read evidence too, and the end of the process waits for them.
        threading.Thread(target=work, name="reward function", daemon=True).start()
        try:
            async with asyncio.timeout(self._timeout_s):
                result = await outcome
        except TimeoutError:
            raise _Failed(f"the function gave no answer within {self._timeout_s:g} s") from None
        finally:
            if outcome.cancelled():
                self._num_stuck += 1
        if isinstance(result, _Failed):
            raise result
        if isinstance(result, BaseException):
            raise _Failed(f"the function raised {type(result).__name__}", raw=str(result)[:500])
        return result


class _Failed(Exception):
    """The reason for people; `raw` may hold text of the conversation, which reasons never do."""

    def __init__(self, reason: str, *, raw: str = "") -> None:
        super().__init__(reason)
        self.raw = raw


def _digest(module: ModuleType) -> str:
    """Which state of the file judged: as much of its checksum as people compare."""
    file = Path(module.__file__) if module.__file__ else None
    return hashlib.sha256(file.read_bytes()).hexdigest()[:12] if file and file.is_file() else "built-in"


def _made(named: Any, path: str, checkpoint: Path | None) -> Any:
    """An object of a class, made with the checkpoint if there is one and the class takes an argument."""
    if not inspect.isclass(named):
        return named
    target: Callable[..., Any] = named
    try:
        takes_one = any(p.kind in _POSITIONAL for p in inspect.signature(target).parameters.values())
        return target(str(checkpoint)) if checkpoint is not None and takes_one else target()
    except Exception as error:
        remedy = (
            "mend it" if checkpoint is not None else "give its checkpoint (evaluation.judge_path), or name an instance"
        )
        raise ConfigError(f"{path} of evaluation.judge_function cannot be made: {error!r}; {remedy}") from error


def _callable(target: Any, path: str) -> tuple[Batched, int]:
    """What is called with a batch, and how large a batch it takes."""
    if callable(batch := getattr(target, "batch_compute_rewards", None)):
        return batch, _MAX_BATCH
    single = getattr(target, "compute_reward", target)
    if not callable(single):
        raise ConfigError(
            f"{path} of evaluation.judge_function is neither a function nor has it compute_reward(prompt, response, "
            "next_feedback) or batch_compute_rewards(items)"
        )

    def one_by_one(items: list[Item]) -> list[Any]:
        return [single(item["prompt"], item["response"], item["feedback"]) for item in items]

    return one_by_one, 1


def _rewards(result: Any, num_items: int) -> list[Any]:
    """One plain value per item; runs in the function's own thread."""
    rewards = _plain(result)
    if not isinstance(rewards, list | tuple) or len(rewards) != num_items:
        raise _Failed(f"the function did not return one reward for each of {num_items} turns")
    return [_plain(reward) for reward in rewards]


def _plain(result: Any) -> Any:
    """The result itself, awaited where it is to be, and out of its tensor or array where it is in one."""
    if inspect.isawaitable(result):
        return _plain(asyncio.run(_awaited(result)))
    return result.tolist() if hasattr(result, "tolist") and hasattr(result, "shape") else result


async def _awaited(result: Awaitable[Any]) -> Any:
    return await result


def _item(evidence: Evidence) -> Item:
    return Item(
        prompt=_text(evidence.request),
        response=_text((evidence.reply,)),
        feedback=_text(evidence.following) or "\n\n".join(f.text for f in evidence.feedback),
    )


def _text(messages: Iterable[Message]) -> str:
    """What the messages say; a tool call as its name and arguments."""
    parts = [[m.content, *(f"{c.name}({c.arguments})" for c in m.tool_calls)] for m in messages]
    return "\n\n".join(part for message in parts for part in message if part)


def _verdict(reward: Any) -> Verdict:
    if isinstance(reward, _Failed):
        return _failed(str(reward), reward.raw)
    if reward is None:
        return Verdict(outcome="abstained", reason="the function returned None")
    if isinstance(reward, bool) or not isinstance(reward, int | float):
        return _failed(f"the function returned a {type(reward).__name__}; a number or None is needed", "")
    if not math.isfinite(reward):
        return _failed(f"the function returned {reward}", str(reward))
    score: Score = 0 if reward == 0 else 1 if reward > 0 else -1
    vote = Vote(question="score", score=score, raw=f"{reward:g}")
    return Verdict(outcome="scored", score=score, value=float(reward), votes=(vote,))


def _failed(reason: str, raw: str) -> Verdict:
    vote = Vote(question="score", score=None, failure=reason, raw=raw)
    return Verdict(outcome="failed", reason=reason, votes=(vote,))
