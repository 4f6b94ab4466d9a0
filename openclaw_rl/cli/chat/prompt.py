"""Where the chat's lines come from: a person at a terminal, or a pipe. Knows nothing of what they mean."""

from __future__ import annotations

import sys
import termios
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from openclaw_rl.cli.chat.lines import NAMES
from openclaw_rl.cli.chat.view import View


class TypedLines:
    """Messages as a person types them. They end at Ctrl-D, or when Ctrl-C comes twice without a line in between.

    Enter sends; Alt-Enter and pasted line breaks stay in the message. Keys pressed during an answer are not echoed
    into it, and are there when the next prompt appears. The up key finds what is typed and, before that, `said`; none
    of it is kept in a file.
    """

    def __init__(self, view: View, *, said: Sequence[str] = (), is_private: Callable[[], bool] = lambda: False) -> None:
        # Imported here: a pipe needs none of it, and it takes 0.2 s.
        from prompt_toolkit import PromptSession
        from prompt_toolkit.completion import WordCompleter
        from prompt_toolkit.history import InMemoryHistory
        from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
        from prompt_toolkit.shortcuts import CompleteStyle

        keys = KeyBindings()

        @keys.add("escape", "enter")
        def _(event: KeyPressEvent) -> None:
            event.current_buffer.insert_text("\n")

        self._view = view
        self._interrupted = False
        self._session: PromptSession[str] = PromptSession(
            lambda: [("", "private ") if is_private() else ("", ""), ("bold", "› ")],
            prompt_continuation=[("", "  ")],
            history=InMemoryHistory(said),
            key_bindings=keys,
            completer=WordCompleter(list(NAMES), sentence=True),
            complete_style=CompleteStyle.READLINE_LIKE,
            complete_while_typing=False,
            enable_suspend=True,
        )

    def stopped(self) -> None:
        """Ctrl-C has stopped an answer: the next one leaves."""
        self._interrupted = True

    def __iter__(self) -> Iterator[str]:
        while True:
            try:
                line = self._session.prompt()
            except EOFError:
                return
            except KeyboardInterrupt:
                if self._interrupted:
                    return
                self._interrupted = True
                self._view.note("Ctrl-C again, or Ctrl-D, leaves.")
                continue
            self._interrupted = False
            with _keys_not_echoed():
                yield line


def piped_lines() -> Iterator[str]:
    """Messages from standard input, one a line; bytes that are no UTF-8 become replacement characters."""
    for line in sys.stdin.buffer:
        yield line.decode("utf-8", "replace")


@contextmanager
def _keys_not_echoed() -> Iterator[None]:
    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    silent = termios.tcgetattr(terminal)
    silent[3] &= ~termios.ECHO
    termios.tcsetattr(terminal, termios.TCSADRAIN, silent)
    try:
        yield
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)
