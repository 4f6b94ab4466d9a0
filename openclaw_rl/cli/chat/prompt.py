"""Where the chat's lines come from: a person at a terminal, or a pipe. Knows nothing of what they mean."""

from __future__ import annotations

import os
import sys
import termios
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from openclaw_rl.cli.chat.lines import NAMES
from openclaw_rl.cli.chat.view import View

HISTORY_FILE = "chat_history"


class TypedLines:
    """Messages as a person types them. They end at Ctrl-D, or when Ctrl-C comes twice without a line in between.

    Enter sends; Alt-Enter and pasted line breaks stay in the message. Keys pressed during an answer are not echoed
    into it, and are there when the next prompt appears. What is typed while `is_private` is not kept for other days.
    """

    def __init__(self, data_dir: Path, view: View, *, is_private: Callable[[], bool] = lambda: False) -> None:
        # Imported here: a pipe needs none of it, and it takes 0.2 s.
        from prompt_toolkit import PromptSession
        from prompt_toolkit.completion import WordCompleter
        from prompt_toolkit.history import FileHistory, InMemoryHistory
        from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
        from prompt_toolkit.shortcuts import CompleteStyle

        keys = KeyBindings()

        @keys.add("escape", "enter")
        def _(event: KeyPressEvent) -> None:
            event.current_buffer.insert_text("\n")

        class _PublicHistory(FileHistory):
            def store_string(self, string: str) -> None:
                if not is_private():
                    super().store_string(string)

        history = _private_file(data_dir / HISTORY_FILE)
        self._view = view
        self._interrupted = False
        self._session: PromptSession[str] = PromptSession(
            lambda: [("", "private ") if is_private() else ("", ""), ("bold", "› ")],
            prompt_continuation=[("", "  ")],
            history=_PublicHistory(history) if history else InMemoryHistory(),
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


def forget_typed(data_dir: Path, said: Collection[str] | None) -> None:
    """Leaves no kept line that is one of these texts, or a command about one; None: leaves none at all."""
    path = data_dir / HISTORY_FILE
    if said is None or not path.exists():
        path.unlink(missing_ok=True)
        return
    texts = {text.strip() for text in said} - {""}

    def is_said(entry: str) -> bool:
        # FileHistory: a blank line, `# time`, then the lines of one entry, each behind a plus sign.
        typed = "\n".join(line[1:] for line in entry.split("\n")[1:] if line.startswith("+")).strip()
        return typed in texts or (typed.startswith("/") and any(text in typed for text in texts))

    entries = path.read_text(encoding="utf-8", errors="replace").split("\n# ")
    kept = [entry for entry in entries if not is_said(entry)]
    scratch = path.with_name(f".{HISTORY_FILE}.new")
    scratch.touch(mode=0o600)
    scratch.write_text("\n# ".join(["", *(entry for entry in kept if entry)]), encoding="utf-8")
    scratch.replace(path)


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


def _private_file(path: Path) -> Path | None:
    """The file, made with mode 0600 if it is not there; None where the directory is missing or not ours to write."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
    except OSError:
        return None
    return path
