"""How many tokens a rendering may make before it is not worth going on with.

Whoever renders for somebody says how many the window holds, and whether that person still waits; tokenising asks, piece
by piece. Renderers between the two need not know of it, nor do those of other packages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from openclaw_rl.errors import PromptTooLong


class Abandoned(Exception):
    """Nobody waits for the result any more."""


@dataclass(slots=True)
class Allowance:
    """`max_tokens` for all that is tokenised; `num_tokens` of them are made."""

    max_tokens: int
    is_wanted: Callable[[], bool]
    num_tokens: int = 0

    def holds(self, num_tokens: int) -> bool:
        """Whether so many more may be made."""
        return self.num_tokens + num_tokens <= self.max_tokens

    def foresee(self, num_tokens: int) -> None:
        """What comes next makes at least this many: `PromptTooLong` if that is too many."""
        if not self.is_wanted():
            raise Abandoned
        if not self.holds(num_tokens):
            raise PromptTooLong(self.num_tokens + num_tokens)

    def spend(self, num_tokens: int) -> None:
        """As many were made."""
        self.foresee(num_tokens)
        self.num_tokens += num_tokens


_allowance: ContextVar[Allowance | None] = ContextVar("allowance", default=None)


def current_allowance() -> Allowance | None:
    """That of the rendering at work; None where nobody limits it."""
    return _allowance.get()


@contextmanager
def allowing(max_tokens: int, is_wanted: Callable[[], bool] = lambda: True) -> Iterator[Allowance]:
    """Limits what is tokenised inside."""
    allowance = Allowance(max_tokens, is_wanted)
    token = _allowance.set(allowance)
    try:
        yield allowance
    finally:
        _allowance.reset(token)
