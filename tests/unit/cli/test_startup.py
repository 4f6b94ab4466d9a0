"""What `up` prints can be copied: the address, the key, and a curl command that a shell reads as it is meant."""

from __future__ import annotations

import io
import json
import shlex
from pathlib import Path

from rich.console import Console

from openclaw_rl.cli.startup import curl_command, started_text

URL = "http://127.0.0.1:30000"


def shown(*, key: str | None, data_dir: Path = Path("/data dir"), is_found: bool = False, width: int = 40) -> str:
    console = Console(file=io.StringIO(), width=width, highlight=False)
    text = started_text(url=URL, key=key, model="tiny", data_dir=data_dir, is_found=is_found)
    console.print(text, soft_wrap=True)
    file = console.file
    assert isinstance(file, io.StringIO)
    return file.getvalue()


def test_the_curl_command_is_one_command() -> None:
    words = shlex.split(curl_command(URL, Path("/data dir/key")))
    assert words[:2] == ["curl", f"{URL}/v1/chat/completions"]
    assert "Authorization: Bearer $(cat '/data dir/key')" in words
    assert json.loads(words[words.index("-d") + 1])["messages"][0]["content"] == "Hello!"


def test_a_narrow_terminal_breaks_no_line_that_is_to_be_copied() -> None:
    text = shown(key="ocrl-secret")
    assert f"{URL}/v1\n" in text
    assert "ocrl-secret  (also in /data dir/key)" in text
    assert "openclaw-rl chat --data-dir '/data dir'\n" in text
    assert curl_command(URL, Path("/data dir/key")) in text


def test_what_commands_find_by_themselves_is_not_repeated() -> None:
    assert "openclaw-rl chat\n" in shown(key="k", is_found=True)


def test_a_server_without_keys_shows_none() -> None:
    text = shown(key=None)
    assert "Key" not in text
    assert "Authorization" not in text
