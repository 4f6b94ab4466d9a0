"""What a machine lacks for boxes is said with its remedy, and what can be done without it is done."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from openclaw_rl.envs.sandbox.box import BoxSpec
from openclaw_rl.envs.sandbox.bubblewrap import BubblewrapSandbox
from openclaw_rl.envs.sandbox.lacking import missing_network, missing_users, unmakeable
from openclaw_rl.envs.sandbox.warden_link import WardenLink
from openclaw_rl.errors import EnvError, TaskError
from tests.fakes.boxes import sandbox_or_skip


@pytest.fixture
def no_programs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))


async def test_without_bubblewrap_nothing_runs(no_programs: None, tmp_path: Path) -> None:
    sandbox = BubblewrapSandbox(tmp_path)
    assert "bubblewrap is not installed; remedy: apt-get install bubblewrap" in sandbox.lacks()
    with pytest.raises(EnvError, match="no box can be made here: bubblewrap is not installed"):
        await sandbox.start(BoxSpec())


async def test_without_the_programs_for_networks_and_users_a_box_has_neither(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And everything else."""
    sandbox_or_skip(tmp_path / "scratch")
    bubblewrap = next(Path(folder, "bwrap") for folder in os.get_exec_path() if Path(folder, "bwrap").exists())
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "bwrap").symlink_to(bubblewrap)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    sandbox = BubblewrapSandbox(tmp_path / "scratch")
    box = await sandbox.start(BoxSpec())
    assert (await box.run("id -u; echo well >/tmp/x; cat /tmp/x", timeout_s=30)).output == "0\nwell\n"
    await box.close()
    with pytest.raises(TaskError, match="needs slirp4netns; remedy: apt-get install slirp4netns"):
        await sandbox.start(BoxSpec(network="full"))


def test_without_the_device_of_tunnels_no_box_has_a_network(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "slirp4netns").touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    tunnel = tmp_path / "tun"
    assert f"cannot open; remedy: chmod 666 {tunnel}" in missing_network(str(tunnel))
    tunnel.touch()
    assert missing_network(str(tunnel)) == ""


@pytest.mark.parametrize(
    ("uid", "programs", "ranges", "why"),
    [
        (0, (), "", ""),
        (1234, (), "1234:100000:65536\n", "apt-get install uidmap"),
        (1234, ("newuidmap",), "", "usermod --add-subuids"),
        (1234, ("newuidmap",), "1234:100000:1000\nother:100000:65536\n", "usermod --add-subuids"),
        (1234, ("newuidmap",), "other:1:2\n1234:100000:65536\n", ""),
    ],
)
def test_why_there_is_nobody_in_a_box_but_root(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, uid: int, programs: tuple[str, ...], ranges: str, why: str
) -> None:
    for name in programs:
        (tmp_path / name).touch(mode=0o755)
    (tmp_path / "ranges").write_text(ranges)
    monkeypatch.setenv("PATH", str(tmp_path))
    told = missing_users(uid=uid, ranges=[str(tmp_path / "ranges")])
    assert why in told
    assert bool(told) == bool(why)


async def test_a_process_that_makes_boxes_and_dies_is_told(tmp_path: Path) -> None:
    sandbox_or_skip(tmp_path / "scratch")
    link = WardenLink(tmp_path / "scratch")
    link.close()
    assert "died" in unmakeable(link)
