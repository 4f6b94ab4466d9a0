"""Calls of an SDK -> answers, or `CloudError`; waits have an end.

SDKs try again for minutes, and ask for a result for as long as the network is down. Here a service that has said
nothing to a plain question for `patience_s` is away, whatever its SDK still hopes; one that computes may take long,
though not for ever. Which question is plain, and what an error means, is said by each service.
"""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from concurrent.futures import CancelledError, Future
from typing import Any, TypeVar

from openclaw_rl.cloud.service import Access
from openclaw_rl.errors import CloudError

_T = TypeVar("_T")

_LOOK_EVERY_S = 2.0
_LONGEST_S = 1800.0
"""A request that took longer is given up, though the service is there: it was refused for its rate again and again, or
waits for a place that does not come."""


class Link(ABC):
    """The way to one service."""

    sdk: Any
    """The module, which was imported in this process alone."""

    def __init__(self, access: Access) -> None:
        self.access = access
        self._heard_at = time.monotonic()

    @abstractmethod
    async def is_there(self) -> bool:
        """Whether it answers a plain question at all; `CloudError` if it asks for money instead."""

    @abstractmethod
    def explained(self, error: Exception) -> CloudError:
        """An error of the SDK's as one sentence with the remedy. What it quotes of a request is not repeated."""

    async def asked(self, call: Callable[[], Any]) -> Any:
        """What a call of the SDK gives, and what it promises, however it promises it; `CloudError`."""

        async def answer() -> Any:
            made = await asyncio.to_thread(call)
            if hasattr(made, "future") and hasattr(made, "result"):
                return await asyncio.wrap_future(made.future())
            if isinstance(made, Future):  # older versions of the SDK promise some things so
                return await asyncio.wrap_future(made)
            while isinstance(made, Awaitable):  # some promise a promise
                made = await made
            return made

        return await self.waited(answer())

    async def waited(self, answer: Awaitable[_T]) -> _T:
        """An answer, or `away` once the service has been silent for too long."""
        task, began_at = asyncio.ensure_future(answer), time.monotonic()
        self._heard_at = max(self._heard_at, time.monotonic() - _LOOK_EVERY_S)
        try:
            while True:
                done, _ = await asyncio.wait((task,), timeout=_LOOK_EVERY_S)
                if done:
                    break
                if await self.is_there():
                    self._heard_at = time.monotonic()
                    if self._heard_at - began_at > _LONGEST_S:
                        raise CloudError(f"{self.access.place} has no place for a request: try later", kind="busy")
                elif time.monotonic() - self._heard_at > self.access.patience_s:
                    raise CloudError(
                        f"{self.access.place} has not answered for {self.access.patience_s:g} s; nothing is lost, and "
                        "it is asked again later",
                        kind="away",
                    )
            self._heard_at = time.monotonic()
            return task.result()
        except CloudError:
            raise
        except (CancelledError, asyncio.CancelledError):
            if task.cancelled():
                raise CloudError(f"{self.access.place} ended a request", kind="failed") from None
            raise
        except Exception as error:
            raise self.explained(error) from error
        finally:
            if not task.done():
                task.cancel()
                task.add_done_callback(lambda done: done.cancelled() or done.exception())


def first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
