"""What `up` and `serve` say: that they start, and, once they do, how to talk to the model. Starts nothing itself."""

from __future__ import annotations

import shlex
from pathlib import Path

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from openclaw_rl.terminal.address import KEY_FILE

_BODY = '{"messages": [{"role": "user", "content": "Hello!"}]}'


def print_starting(console: Console, *, model: str, engine: str) -> None:
    console.print(Text.assemble(("Starting ", "dim"), model, (f" on the {engine} engine …", "dim")))


def print_started(console: Console, *, url: str, key: str | None, model: str, data_dir: Path, is_found: bool) -> None:
    """The block that a person reads and copies from; `is_found`: commands find this data directory by themselves."""
    console.print(started_text(url=url, key=key, model=model, data_dir=data_dir, is_found=is_found), soft_wrap=True)


def started_text(*, url: str, key: str | None, model: str, data_dir: Path, is_found: bool) -> Group:
    """`key` None: this server asks for none."""
    key_file = data_dir / KEY_FILE
    chat = "openclaw-rl chat" + ("" if is_found else f" --data-dir {shlex.quote(str(data_dir))}")
    shown = Table.grid(padding=(0, 2))
    shown.add_column(style="dim")
    shown.add_column(overflow="fold")
    shown.add_row("Base URL", Text(f"{url}/v1", "bold"))
    if key is not None:
        shown.add_row("Key", Text.assemble((key, "bold"), (f"  (also in {key_file})", "dim")))
    shown.add_row("Chat", Text(chat, "bold"))
    title = Text.assemble("\n", ("OpenClaw-RL is ready", "bold green"), f"  {model}\n")
    curl = Text(f"\n{curl_command(url, key_file if key is not None else None)}\n")
    return Group(title, shown, curl, Text("Ctrl-C stops everything.", "dim"))


def curl_command(url: str, key_file: Path | None) -> str:
    """A request that can be pasted into a shell; the key stays in its file and out of the shell's history."""
    parts = [f"curl {shlex.quote(url)}/v1/chat/completions"]
    if key_file is not None:
        parts.append(f'-H "Authorization: Bearer $(cat {shlex.quote(str(key_file))})"')
    parts += ["-H 'Content-Type: application/json'", f"-d '{_BODY}'"]
    return " \\\n  ".join(parts)
