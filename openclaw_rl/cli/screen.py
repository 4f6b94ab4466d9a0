"""Values to what a terminal shows: the one console that all text passes, times in words, JSON.

Colour only where a terminal is, and never with NO_COLOR; rich sees to both. Knows no command.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Collection, Iterable
from typing import Literal

import orjson
from rich.console import Console, ConsoleOptions, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from openclaw_rl.logs import is_hidden, printable
from openclaw_rl.types import Json

_NOT_ASCII = re.compile(r"[^\n -~]")
_PIPE_WIDTH = 200
"""Columns where no terminal says how many: tables are read by grep there, so they must not be squeezed to 80."""


class Screen(Console):
    """A console on which foreign text can do no harm: all that is shown passes `render`, and is `printable` after."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)


def make_console(stream: Literal["stdout", "stderr"] = "stdout") -> Console:
    """A console on one of the two streams as they are now."""
    is_terminal = getattr(sys, stream).isatty()
    return Screen(stderr=stream == "stderr", highlight=False, width=None if is_terminal else _PIPE_WIDTH)


def plain_table(*titles: str, right: Collection[str] = ()) -> Table:
    """A table without lines. Its columns do not wrap; those in `right` are numbers."""
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for title in titles:
        table.add_column(title, no_wrap=True, justify="right" if title in right else "left")
    return table


def facts(*rows: tuple[str, str]) -> Table:
    """Names and what is said of each, for the end of a command."""
    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 3, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, said in rows:
        table.add_row(Text(name), Text(said))
    return table


def progress(*, show: bool, beside: Console | None = None) -> Progress:
    """Bars, gone at the end; none unless `show`, and where no terminal is.

    On standard error, or on the console that lines are printed to meanwhile: two consoles on one terminal would write
    over each other.
    """
    console = beside or make_console("stderr")
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    is_shown = show and console.is_terminal
    return Progress(SpinnerColumn(), *columns, console=console, transient=True, disable=not is_shown)


def one_line(text: str, limit: int) -> str:
    """Foreign text on one line of at most `limit` characters.

    >>> one_line("What is\\n gravity?", 12)
    'What is gra…'
    """
    words = " ".join(printable(text).split())
    return words if len(words) <= limit else words[: limit - 1] + "…"


def ago(seconds: float) -> str:
    """How long something is past, in its largest unit.

    >>> ago(7300)
    '2 h ago'
    """
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60), ("s", 1)):
        if seconds >= length:
            return f"{int(seconds // length)} {unit} ago"
    return "now"


def print_json(value: Json) -> None:
    """One JSON value on standard output: on one line for programs, indented for people."""
    sys.stdout.write(json_text(value, indent=sys.stdout.isatty()) + "\n")


def json_text(value: Json, *, indent: bool = False) -> str:
    """JSON in which characters that a terminal would obey are written out as escapes: the same value, and no harm."""
    text = orjson.dumps(value, option=orjson.OPT_INDENT_2 if indent else 0).decode()
    return _NOT_ASCII.sub(lambda found: _escape(found[0]) if is_hidden(found[0]) else found[0], text)


def _escape(char: str) -> str:
    return json.dumps(char)[1:-1] if char != "\x7f" else "\\u007f"


def complain(message: str) -> None:
    """An error on standard error, in red."""
    make_console("stderr").print(f"error: {message}", style="red", markup=False, soft_wrap=True)
