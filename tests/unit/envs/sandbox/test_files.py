"""Files into a box and out of it, also where the box does not mean well."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from openclaw_rl.envs.sandbox.box import BoxLimits
from openclaw_rl.envs.sandbox.bubblewrap import BubblewrapBox
from openclaw_rl.envs.sandbox.files import _stays_inside
from openclaw_rl.errors import TaskError
from tests.fakes.boxes import Boxes


async def test_files_go_in_and_come_out(boxes: Boxes) -> None:
    box = await boxes.open()
    data = bytes(range(256)) * 1000
    await box.write("/new/folder/tool", data, mode=0o750)
    assert await box.read("/new/folder/tool", max_bytes=len(data)) == data
    assert (await box.run("stat -c '%a %U %s' /new/folder/tool", timeout_s=30)).output == "750 root 256000\n"
    await box.write("/new/folder/tool", b"short")
    assert await box.read("/new/folder/tool", max_bytes=10) == b"short"
    await box.write("/empty", b"")
    assert await box.read("/empty", max_bytes=0) == b""


async def test_a_program_that_was_written_can_be_started_at_once(boxes: Boxes) -> None:
    opened = [await boxes.open() for _ in range(6)]

    async def write_and_start(box: BubblewrapBox) -> str:
        await box.write("/tool", b"#!/bin/sh\necho works\n", mode=0o755)
        return (await box.run("/tool", timeout_s=30)).output

    for _ in range(6):
        assert await asyncio.gather(*map(write_and_start, opened)) == ["works\n"] * 6


async def test_what_is_no_file_reads_as_none(boxes: Boxes) -> None:
    box = await boxes.open()
    make = "mkdir /d; mkfifo /fifo; ln -s /loop /loop; ln -s /proc/self/environ /env; ln -s /dev/zero /zero; touch /f"
    await box.run(make, timeout_s=30)
    for path in (
        "/none",
        "/d",
        "/fifo",
        "/loop",
        "/env",
        "/zero",
        "/dev/zero",
        "/proc/cmdline",
        "/f/x",
        "/" + "x" * 300,
    ):
        assert await box.read(path, max_bytes=100) is None, path


async def test_a_file_that_is_too_large_is_not_read(boxes: Boxes) -> None:
    box = await boxes.open(limits=BoxLimits(disk_mb=64))
    await box.run("truncate -s 60M /big", timeout_s=30)
    with pytest.raises(TaskError, match="62914560 bytes"):
        await box.read("/big", max_bytes=1 << 20)


async def test_links_in_a_box_lead_through_the_box(boxes: Boxes) -> None:
    box = await boxes.open()
    await box.run(
        "ln -s /etc/passwd /work/passwd; ln -s /tmp /work/tmp; ln -s ../../../../../../etc /work/up", timeout_s=30
    )
    for path in ("/work/passwd", "/work/up/passwd", "/../../etc/passwd"):
        read = await box.read(path, max_bytes=4096)
        assert read is not None
        assert read.startswith(b"root:x:0:0:root:/root:/bin/bash\nnobody:")
        assert len(read.splitlines()) == 2
    await box.write("/work/tmp/x", b"through")
    assert await box.read("/tmp/x", max_bytes=10) == b"through"
    assert not Path("/tmp/x").exists()


async def test_what_cannot_be_written_is_said(boxes: Boxes) -> None:
    box = await boxes.open(limits=BoxLimits(disk_mb=4))
    await box.run("ln -s /usr/bin/x /out; mkfifo /fifo; touch /file", timeout_s=30)
    for path in ("/usr/bin/x", "/out", "/fifo", "/proc/x", "/dev/null", "/file/x", "/work", "/dev/x"):
        with pytest.raises(TaskError, match="cannot be written"):
            await box.write(path, b"x")
    with pytest.raises(TaskError, match="No space"):
        await box.write("/big", bytes(8 << 20))


@pytest.mark.parametrize("path", ["relative", "", "/a\0b", "/" + "x" * 5000, "/\ud800"])
async def test_paths_that_are_none_are_refused(boxes: Boxes, path: str) -> None:
    box = await boxes.open()
    with pytest.raises(TaskError, match="absolute"):
        await box.read(path, max_bytes=1)
    with pytest.raises(TaskError, match="absolute"):
        await box.write(path, b"")


_TREE = """
mkdir -p /w/a/b /w/locked; cd /w
printf one >a/one; printf two >a/b/two; chmod 755 a/one; chmod 4755 a/b/two; touch -d 2001-02-03 a/one
ln -s a/one inside; ln -s b/two a/down; ln -s ../a/one a/up
ln -s /etc/passwd absolute; ln -s ../../../etc/passwd out; ln -s a/../../out through; ln -s . a/here
mkfifo a/fifo; ln a/one a/hard; printf x >locked/file; chmod 0 locked/file; chmod 555 locked
python3 -c "import socket; socket.socket(socket.AF_UNIX).bind('/w/a/socket')" || true
"""


async def test_a_tree_is_copied_out_without_what_could_harm(boxes: Boxes, tmp_path: Path) -> None:
    box = await boxes.open()
    await box.run(_TREE, timeout_s=60)
    copy = tmp_path / "deep" / "copy"
    await box.copy_out("/w", copy, max_bytes=1 << 20)
    found = {str(path.relative_to(copy)) for path in copy.rglob("*")}
    folders = {"a", "a/b", "locked"}
    files = {"a/one", "a/b/two", "a/hard", "locked/file"}
    links = {"inside": "a/one", "a/down": "b/two", "a/up": "../a/one", "a/here": "."}
    assert found - {path for path in found if "/here/" in path} == folders | files | set(links)
    assert {path: os.readlink(copy / path) for path in links} == links
    assert (copy / "a" / "b" / "two").read_bytes() == b"two"
    assert [oct((copy / path).stat().st_mode & 0o7777) for path in ("a/one", "a/b/two", "locked")] == [
        *("0o755", "0o755", "0o555")
    ]
    assert (copy / "a" / "one").stat().st_mtime < 1e9
    assert {path.stat().st_uid for path in copy.rglob("*") if not path.is_symlink()} == {os.getuid()}
    await box.copy_out("/w/a/one", tmp_path / "file", max_bytes=10_000)
    assert (tmp_path / "file").read_bytes() == b"one"


async def test_what_is_mounted_in_a_folder_is_not_part_of_it(boxes: Boxes, tmp_path: Path) -> None:
    for name in ("tree", "shown"):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).write_text(name)
    box = await boxes.open(trees={"/app": tmp_path / "tree"}, read_only={"/app/tools": tmp_path / "shown"})
    assert (await box.run("ls /app/tools", timeout_s=30)).output == "shown\n"
    await box.copy_out("/app", tmp_path / "copy", max_bytes=1 << 20)
    assert [path.name for path in (tmp_path / "copy").iterdir()] == ["tree"]


async def test_a_copy_that_would_be_too_large_is_none(boxes: Boxes, tmp_path: Path) -> None:
    box = await boxes.open(limits=BoxLimits(disk_mb=16))
    await box.run("mkdir /w; truncate -s 15M /w/sparse; mkdir /many; cd /many; touch $(seq 500)", timeout_s=60)
    for path in ("/w", "/w/sparse", "/many"):
        with pytest.raises(TaskError, match="larger than 100000"):
            await box.copy_out(path, tmp_path / "copy", max_bytes=100_000)
        assert not (tmp_path / "copy").exists()
    for path in ("/none", "/dev/null"):
        with pytest.raises(TaskError, match="cannot be copied"):
            await box.copy_out(path, tmp_path / "copy", max_bytes=100_000)
    with pytest.raises(TaskError):  # a folder that nobody wants to see, not even the first of its files
        await box.copy_out("/proc", tmp_path / "copy", max_bytes=100_000)


_RACE = """
mkdir -p /w/real /w/other; echo box >/w/real/passwd; cd /w
(while [ ! -e /stop ]; do
  mv real spare && ln -s /etc real; rm real && mv spare real
done) >/dev/null 2>&1 &
"""


async def test_folders_that_become_links_while_they_are_copied(boxes: Boxes, tmp_path: Path) -> None:
    """Nothing of the box's /etc gets into a copy of /w, and nothing of ours."""
    box = await boxes.open()
    await box.run(_RACE, timeout_s=30)
    copied = 0
    for number in range(60):
        copy = tmp_path / str(number)
        await box.copy_out("/w", copy, max_bytes=1 << 20)
        for path in copy.rglob("passwd"):
            assert path.read_bytes() == b"box\n"
            copied += 1
        assert not list(copy.rglob("group"))
    assert copied


async def test_a_copy_that_nobody_waits_for_ends(boxes: Boxes, tmp_path: Path) -> None:
    box = await boxes.open()
    await box.run("mkdir /many; cd /many; touch $(seq 20000)", timeout_s=60)
    task = asyncio.create_task(box.copy_out("/many", tmp_path / "copy", max_bytes=1 << 30))
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not (tmp_path / "copy").exists()
    assert await box.read("/etc/hostname", max_bytes=10) == b"box\n"


@example([".."], 0)
@example(["..", ".."], 1)
@example(["..", "a"], 0)
@example(["a", ".."], 1)
@given(st.lists(st.sampled_from(["a", "b", ".", "..", "", "c"]), min_size=1, max_size=6), st.integers(0, 3))
def test_a_link_stays_inside_only_if_no_step_of_it_can_leave(parts: list[str], depth: int) -> None:
    """Whatever links it passes on its way: at worst each of them leads to the top, so no step up may follow one."""
    place = "/".join(["d"] * depth + ["link"])
    target = "/".join(parts)
    height, has_gone_down = depth, False
    is_safe = not target.startswith("/")
    for part in parts:
        if part == "..":
            height -= 1
            is_safe = is_safe and not has_gone_down and height >= 0
        else:
            has_gone_down = True
    assert not _stays_inside(place, target) or is_safe
