"""What `up` and `serve` say: that they start, how to talk to the model, what was learned. Starts nothing itself."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text

from openclaw_rl.terminal.address import KEY_FILE
from openclaw_rl.terminal.screen import printable

_BODY = '{"messages": [{"role": "user", "content": "Hello!"}]}'


def print_starting(console: Console, *, model: str, engine: str) -> None:
    console.print(Text.assemble(("Starting ", "dim"), model, (f" on the {engine} engine …", "dim")))


def print_stopping(console: Console) -> None:
    console.print(Text("\nRunning answers may finish; Ctrl-C again stops now.", "dim"))


def print_line(console: Console, line: str) -> None:
    """What happened just now, such as a step."""
    console.print(Text(printable(line), "dim"), soft_wrap=True)


def print_started(console: Console, *, url: str, key: str | None, model: str, data_dir: Path, is_found: bool) -> None:
    """The block that a person reads and copies from; `is_found`: commands find this data directory by themselves."""
    console.print(started_text(url=url, key=key, model=model, data_dir=data_dir, is_found=is_found), soft_wrap=True)


def started_text(*, url: str, key: str | None, model: str, data_dir: Path, is_found: bool) -> Text:
    """`key` None: this server asks for none."""
    key_file = data_dir / KEY_FILE
    chat = f"{_command()} chat" + ("" if is_found else f" --data-dir {shlex.quote(str(data_dir))}")
    text = Text.assemble("\n", ("OpenClaw-RL is ready", "bold green"), f"  {model}\n")
    text.append_text(_row("Base URL", f"{url}/v1"))
    if key is not None:
        text.append_text(_row("Key", key))
        text.append(f"  (also in {key_file})", "dim")
    text.append_text(_row("Chat", chat))
    text.append(f"\n\n{curl_command(url, key_file if key is not None else None)}\n\n")
    return text.append("Ctrl-C stops everything.", "dim")


def _command() -> str:
    """How to call us again from the same folder: `make run` starts a command that is not on the PATH."""
    if shutil.which("openclaw-rl") is not None:
        return "openclaw-rl"
    started_as = Path(sys.argv[0])
    return shlex.quote(os.path.relpath(started_as)) if started_as.name == "openclaw-rl" else "openclaw-rl"


def curl_command(url: str, key_file: Path | None) -> str:
    """A request that can be pasted into a shell; the key stays in its file and out of the shell's history."""
    parts = [f"curl {shlex.quote(url)}/v1/chat/completions"]
    if key_file is not None:
        parts.append(f'-H "Authorization: Bearer $(cat {shlex.quote(str(key_file))})"')
    parts += ["-H 'Content-Type: application/json'", f"-d '{_BODY}'"]
    return " \\\n  ".join(parts)


def _row(label: str, value: str) -> Text:
    return Text.assemble("\n", (f"{label:<10}", "dim"), (value, "bold"))
