"""What of /etc gets into a box: what everybody on this machine may read."""

from __future__ import annotations

import os
from pathlib import Path

from openclaw_rl.envs.sandbox.warden.base import _take, make_base, remove_base, sweep_bases
from openclaw_rl.envs.sandbox.warden.uids import Uids

SINGLE = Uids(uid_map=((0, 1000, 1),), gid_map=((0, 1000, 1),))


def test_what_not_everybody_may_read_is_left_out(tmp_path: Path) -> None:
    source = tmp_path / "certs"
    (source / "deep").mkdir(parents=True)
    for name, mode in (("public", 0o644), ("private", 0o600), ("of-a-group", 0o640), ("deep/public", 0o444)):
        (source / name).write_text(name)
        (source / name).chmod(mode)
    (source / "link").symlink_to("/etc/shadow")
    os.mkfifo(source / "pipe")
    _take(source, tmp_path / "etc" / "certs")
    _take(tmp_path / "none", tmp_path / "etc" / "none")
    taken = {str(path.relative_to(tmp_path / "etc")) for path in (tmp_path / "etc").rglob("*")}
    assert taken == {"certs", "certs/deep", "certs/public", "certs/deep/public", "certs/link"}
    assert os.readlink(tmp_path / "etc" / "certs" / "link") == "/etc/shadow", "which is the box's own"


def test_a_base_of_a_process_that_is_gone_is_swept(tmp_path: Path) -> None:
    for process in (os.getpid(), 4_194_304):  # more than any process has
        make_base(tmp_path / f"base-{process}", SINGLE)
    (tmp_path / "other").mkdir()
    sweep_bases(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"base-{os.getpid()}", "other"]
    remove_base(tmp_path / f"base-{os.getpid()}")
    assert [path.name for path in tmp_path.iterdir()] == ["other"]
