"""How the chat looks: an answer while it streams, the line below it, notes and problems.

In a terminal everything is on one screen. Through a pipe standard output gets the answers alone, each ending in a line
break, and standard error the rest, so that a script can use the one and a log keep the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.table import Table
from rich.text import Text

from openclaw_rl.cli.chat.lines import COMMANDS
from openclaw_rl.cli.client import ChatAnswer
from openclaw_rl.logs import printable
from openclaw_rl.types import ReasoningDelta, TextDelta

_REMARKS = {"length": "cut off at the token limit", "abort": "cut off"}


class View:
    """Writes to the screen. `live`: a person is watching and typing."""

    def __init__(self, out: Console, err: Console, *, live: bool, url: str) -> None:
        self._out = out
        self._beside = out if live else err
        self._live = live
        self._url = url
        self._end = "\n\n" if live else "\n"  # a person's screen gets air between one exchange and the next

    def welcome(self, model: str) -> None:
        if self._live:
            self._out.print(Text.assemble(("OpenClaw-RL", "bold"), f" {printable(model)} ", (f"at {self._url}", "dim")))
            self.note("/help lists the commands; Ctrl-C stops an answer, Ctrl-D leaves.")

    def help(self) -> None:
        table = Table.grid(padding=(0, 3))
        for usage, meaning in COMMANDS.items():
            table.add_row(usage.replace("[", r"\["), meaning, style="dim")
        table.add_row("Alt-Enter", "a line break inside a message; pasted ones stay", style="dim")
        self._beside.print(table, end=self._end)

    def note(self, text: str) -> None:
        self._beside.print(printable(text), style="dim", markup=False, soft_wrap=True, end=self._end)

    def problem(self, text: str) -> None:
        self._beside.print(f"error: {printable(text)}", style="red", markup=False, soft_wrap=True, end=self._end)

    @contextmanager
    def answering(self) -> Iterator[Callable[[TextDelta | ReasoningDelta], None]]:
        """Gives what shows one delta. A spinner turns until the first one; the last line is ended in any case."""
        spinner = self._out.status("", spinner="dots") if self._live else None
        shown: TextDelta | ReasoningDelta | None = None

        def show(delta: TextDelta | ReasoningDelta) -> None:
            nonlocal shown
            is_thought = isinstance(delta, ReasoningDelta)
            if is_thought and not self._live:
                return
            if shown is None and spinner is not None:
                spinner.stop()
            elif isinstance(shown, ReasoningDelta) and not is_thought:
                self._out.out("\n")
            shown = delta
            if is_thought:
                self._out.out(printable(delta.text), style="dim", end="", highlight=False)
            else:  # past rich, which would turn tabs into spaces
                self._out.file.write(printable(delta.text))
                self._out.file.flush()

        try:
            if spinner is not None:
                spinner.start()
            yield show
        finally:
            if spinner is not None:
                spinner.stop()
            if shown is not None and not shown.text.endswith("\n"):
                self._out.out("")

    def footer(self, answer: ChatAnswer, *, seconds: float, stopped: bool, private: bool = False) -> None:
        """The version that answered, the name of the turn, and what it took."""
        parts = [answer.version, answer.turn_id]
        if answer.num_tokens is not None:
            parts.append(f"{answer.num_tokens} token{'' if answer.num_tokens == 1 else 's'}")
        parts.append(f"{seconds:.1f} s")
        parts.append("stopped" if stopped else _REMARKS.get(answer.finish_reason or "", ""))
        parts.append("private" if private else "")
        self.note(" · ".join(part for part in parts if part))
