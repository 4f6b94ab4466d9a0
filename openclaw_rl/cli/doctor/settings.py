"""`openclaw-rl config`: every setting, its value and where it came from. Secrets stay hidden."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from openclaw_rl.cli.screen import make_console, plain_table, print_json
from openclaw_rl.config import ConfigRow, LoadedConfig, explain
from openclaw_rl.config.keys import LEAVES, resolve
from openclaw_rl.types import Json

_ASKED = "command line"


def show_settings(loaded: LoadedConfig, keys: Sequence[str], *, as_json: bool) -> None:
    """Print all settings, or those that `keys` (settings or whole sections) name, then with what they are for."""
    rows = select_rows(explain(loaded), keys)
    if as_json:
        print_json(settings_json(loaded, rows))
    else:
        make_console().print(settings_text(rows, with_docs=bool(keys)))


def select_rows(rows: Sequence[ConfigRow], keys: Sequence[str]) -> list[ConfigRow]:
    """The rows of these settings and sections, in tree order; ConfigError with the nearest key for an unknown one."""
    wanted = [resolve(key, _ASKED) for key in keys]
    if not wanted:
        return list(rows)
    return [row for row in rows if any(row.key == key or row.key.startswith(f"{key}.") for key in wanted)]


def settings_json(loaded: LoadedConfig, rows: Sequence[ConfigRow]) -> dict[str, Json]:
    """Dotted key -> value in its own type, source, and what it is for."""
    tree = loaded.config.model_dump(mode="json")
    return {row.key: {"value": _value(tree, row.key), "source": row.source, "doc": row.doc} for row in rows}


def settings_text(rows: Sequence[ConfigRow], *, with_docs: bool) -> Table:
    """A table; what nobody set is dim."""
    table = plain_table("setting")
    table.add_column("value", overflow="fold")
    table.add_column("from", overflow="fold")
    for row in rows:
        style = "dim" if row.source == "default" else ""
        table.add_row(Text(row.key), Text(row.value), Text(row.source), style=style)
        if with_docs:
            table.add_row("", Text(row.doc, "italic dim"), "")
    return table


def _value(tree: Any, key: str) -> Json:
    assert key in LEAVES
    for name in key.split("."):
        tree = tree[name]
    return tree
