"""What an agent is told before its next answer: the opening and its own turns, as many of them as fit.

Pure. It does not know how long a window is: whoever does says when there is too much.
"""

from __future__ import annotations

from collections.abc import Sequence

from openclaw_rl.types import Message


class History:
    """An opening, and the turns since: each is an answer with the results of its calls."""

    def __init__(self, opening: Sequence[Message]) -> None:
        self._opening = tuple(opening)
        self._turns: list[tuple[Message, ...]] = []
        self._num_left_out = 0

    @property
    def is_new(self) -> bool:
        """Whether there has been no turn yet."""
        return not self._turns

    def messages(self) -> list[Message]:
        marker = Message(role="user", content=f"[{self._num_left_out} earlier steps left out]")
        return [*self._opening, *([marker] if self._num_left_out else ()), *(m for turn in self._turns for m in turn)]

    def add(self, answer: Message, results: Sequence[Message]) -> None:
        self._turns.append((answer, *results))

    def shorten(self) -> bool:
        """Leaves out the older half of the turns; False where only the newest is left.

        By halves, so that a long attempt starts a new history seldom: each costs the engine a whole new prompt.
        """
        num_gone = len(self._turns) // 2
        del self._turns[:num_gone]
        self._num_left_out += num_gone
        return num_gone > 0


def cut(text: str, max_chars: int) -> str:
    """A text of at most about so many characters: its beginning and its end, with a marker between them.

    >>> cut("abcdefgh", 4)
    'ab\\n[4 characters left out]\\ngh'
    """
    num_gone = len(text) - max_chars
    if num_gone <= 0:
        return text
    head = max_chars // 2
    return f"{text[:head]}\n[{num_gone} characters left out]\n{text[head + num_gone :]}"
