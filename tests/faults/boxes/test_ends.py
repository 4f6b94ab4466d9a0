"""Ends of boxes: whoever is killed, and however, nothing of a box is left, and those who used it hear of it."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from openclaw_rl.envs.sandbox.box import BoxSpec
from openclaw_rl.envs.sandbox.bubblewrap import BubblewrapSandbox
from openclaw_rl.envs.sandbox.warden.cgroup import PREFIX, homes_here
from openclaw_rl.errors import EnvError
from tests.fakes.boxes import at_rest, leftovers, nothing_is_left, sandbox_or_skip
from tests.faults.boxes.probe import DAEMONS, PATIENCE_S, Probe
from tests.hardening.report import report

ROOT = Path(__file__).parents[3]


async def test_daemons(probe: Probe, sandbox: BubblewrapSandbox) -> None:
    """They outlive their command, as a server that an agent starts is to, and not their box."""
    before = leftovers(sandbox).processes
    for box in (probe.box, await probe.open()):
        assert (await box.shell(DAEMONS, timeout_s=PATIENCE_S)).exit_code == 0
    assert (await probe.sh("pgrep -c sleep")).output == "5\n"
    assert leftovers(sandbox).processes > before + 10
    assert (await probe.shell("sleep 1000", timeout_s=0.2)).exit_code is None
    assert (await probe.sh("pgrep -c sleep")).output.strip() in "345", "those with a session of their own go on"


async def test_what_was_written_is_gone(probe: Probe) -> None:
    """From box to box nothing stays: no file, no segment of memory, no name."""
    leave = "echo left >/tmp/left; echo left >/dev/shm/left; ipcmk -M 4096; ipcmk -Q; mkdir /work/left; useradd left"
    await probe.sh(leave)
    await probe.box.close()
    probe.box = await probe.open()
    assert (
        await probe.sh("ls -A /tmp /dev/shm /work /home | grep left; ipcs -mq | grep '^0x'; id left")
    ).exit_code != 0


async def test_process_1_that_is_killed_from_outside(probe: Probe, sandbox: BubblewrapSandbox) -> None:
    """As the kernel does where memory ends. Nobody in the box could: so it is the environment's failure."""
    running = asyncio.create_task(probe.box.run("touch /tmp/begun; sleep 1000", timeout_s=PATIENCE_S))
    await probe.sh("until [ -e /tmp/begun ]; do sleep 0.02; done")
    first = _processes_1(sandbox)[1]
    os.kill(first, signal.SIGKILL)
    with pytest.raises(EnvError, match="gone"):
        await running
    for call in (probe.box.run, probe.box.shell):
        with pytest.raises(EnvError, match="gone"):
            await call("true", timeout_s=PATIENCE_S)
    await _until_gone(lambda: probe.box.read("/etc/passwd", max_bytes=1000))


async def test_the_end_of_an_attendant(probe: Probe, sandbox: BubblewrapSandbox) -> None:
    """The parent of process 1, which stays outside."""
    psutil.Process(_processes_1(sandbox)[1]).parent().kill()
    await _until_gone(lambda: probe.box.run("true", timeout_s=PATIENCE_S))


async def test_a_warden_that_is_killed(tmp_path: Path) -> None:
    """Its boxes end with it; the next box has another, who takes away what was left."""
    sandbox = sandbox_or_skip(tmp_path)
    boxes = [await sandbox.start(BoxSpec()) for _ in range(3)]
    for box in boxes:
        await box.shell(DAEMONS, timeout_s=PATIENCE_S)
    running = asyncio.create_task(boxes[0].run("sleep 1000", timeout_s=PATIENCE_S))
    warden = sandbox.warden
    assert warden is not None
    processes = psutil.Process(warden).children(recursive=True)
    assert len(processes) > 20
    os.kill(warden, signal.SIGKILL)
    with pytest.raises(EnvError, match="gone"):
        await running
    await _until(lambda: not psutil.wait_procs(processes, timeout=0)[1])
    for box in boxes:
        with pytest.raises(EnvError, match="gone"):
            await box.run("true", timeout_s=PATIENCE_S)
        await box.close()
    after = await sandbox.start(BoxSpec())
    assert (await after.run("echo well", timeout_s=PATIENCE_S)).output == "well\n"
    assert sandbox.warden != warden
    await after.close()
    assert not _groups_of(warden)
    assert [folder.name for folder in tmp_path.iterdir()] == [f"base-{sandbox.warden}"]


@pytest.mark.parametrize("num_kills", [2, pytest.param(20, marks=pytest.mark.hardening)])
async def test_whoever_uses_boxes_is_killed(tmp_path: Path, num_kills: int) -> None:
    """Without a word to anybody, in the middle of what he does: the warden notices, and ends all that is his."""
    sandbox_or_skip(tmp_path / "here")
    for _ in range(num_kills):
        with _child(tmp_path / "there") as child:
            wardens = psutil.Process(child.pid).children()
            processes = psutil.Process(child.pid).children(recursive=True)
            child.send_signal(signal.SIGKILL)
            assert len(processes) > 20
            await _until(lambda processes=processes: not psutil.wait_procs(processes, timeout=0)[1])  # type: ignore[misc]
            assert not [group for warden in wardens for group in _groups_of(warden.pid)]
            assert not list((tmp_path / "there").iterdir())
    report("killed makers of boxes", kills=num_kills, leftovers=0)


async def test_all_are_killed_at_once(tmp_path: Path) -> None:
    """Nobody is there to clear up: folders and groups stay, until somebody makes boxes in the same place."""
    sandbox = sandbox_or_skip(tmp_path / "scratch")
    with _child(tmp_path / "scratch") as child:
        (warden,) = psutil.Process(child.pid).children()
        processes = warden.children(recursive=True)
        warden.suspend()
        child.kill()
        warden.kill()
        await _until(lambda: not psutil.wait_procs(processes, timeout=0)[1])
    again = BubblewrapSandbox(tmp_path / "scratch")
    await (await again.start(BoxSpec())).close()
    assert not _groups_of(warden.pid)
    names = {folder.name for folder in (tmp_path / "scratch").iterdir()}
    assert names == {f"base-{sandbox.warden}", f"base-{again.warden}"}


@pytest.mark.parametrize("num_boxes", [24, pytest.param(200, marks=pytest.mark.hardening)])
async def test_many_boxes_leave_nothing(sandbox: BubblewrapSandbox, num_boxes: int) -> None:
    """Eight at a time; each is worked in, and closed in the middle of it."""
    before = await at_rest(sandbox)
    one_of_eight = asyncio.Semaphore(8)

    async def attempt(number: int) -> None:
        async with one_of_eight:
            box = await sandbox.start(Probe.NEIGHBOUR)
            try:
                ran = await box.shell(f"setsid sleep 1000 & echo {number} | tee /tmp/n", timeout_s=PATIENCE_S)
                assert ran.output == f"{number}\n"
                assert await box.read("/tmp/n", max_bytes=10) == f"{number}\n".encode()
            finally:
                await box.close()

    await asyncio.gather(*map(attempt, range(num_boxes)))
    await nothing_is_left(sandbox, before)
    report("boxes", starts=num_boxes, leftovers=0)


async def test_a_box_is_closed_while_it_is_used(probe: Probe) -> None:
    """Everybody who waits for it hears of the end, and nobody waits for ever."""
    calls = [asyncio.create_task(probe.box.run("sleep 1000", timeout_s=PATIENCE_S)) for _ in range(4)]
    calls += [asyncio.create_task(probe.box.shell("touch /tmp/on; sleep 1000", timeout_s=PATIENCE_S)) for _ in range(3)]
    await probe.sh("until [ -e /tmp/on ]; do sleep 0.02; done")
    await probe.box.close()
    async with asyncio.timeout(PATIENCE_S):
        ended = await asyncio.gather(*calls, return_exceptions=True)
    assert all(isinstance(each, EnvError) for each in ended), ended


def _processes_1(sandbox: BubblewrapSandbox) -> list[int]:
    """Of the boxes that there are, the oldest first: each is the only child of its attendant."""
    attendants = sorted(psutil.Process(sandbox.warden).children(), key=lambda process: process.pid)
    return [attendant.children()[0].pid for attendant in attendants]


def _groups_of(warden: int) -> list[str]:
    return [
        folder for home in homes_here().all for folder in os.listdir(home) if folder.startswith(f"{PREFIX}{warden}-")
    ]


def _child(scratch: Path) -> subprocess.Popen[str]:
    """A process of its own with three boxes at work."""
    command = [sys.executable, "-m", "tests.faults.boxes.box_child", str(scratch)]
    child = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "at work\n"
    return child


async def _until_gone(call: Callable[[], Awaitable[object]]) -> None:
    end = time.monotonic() + 20
    with suppress(EnvError):
        while time.monotonic() < end:
            await call()
    with pytest.raises(EnvError, match="gone"):
        await call()


async def _until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end, "it did not come about"
        await asyncio.sleep(0.02)
