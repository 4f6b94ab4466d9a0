"""The probes whose outcome depends on who we are, once more: by an ordinary user to whom the machine lends nothing."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.boxes import needs_python, sandbox_or_skip

pytestmark = pytest.mark.timeout(400)

HERE = Path(__file__).parent
PROBES = (
    "gigabytes or fork_bomb or limits_stay or nobody_receives or fill_the_disk or process_1 or mounts or namespaces or "
    "devices or what_a_program_has or way_out or who_is or links_to or no_text or without_end or listens or meet"
)
WITH_USERS = "rights or a_box_has_users or root_of_layers or trees_are_copies or files_go_in or process_1"
BOXES = HERE.parents[1] / "unit" / "envs" / "sandbox"
FILES = (BOXES / "test_bubblewrap.py", BOXES / "test_files.py", HERE / "test_escapes.py")
UID = "54321"
ALONE = "mount --make-rprivate / && mount -t tmpfs none /sys/fs/cgroup"
READS = "--inh-caps=-all,+dac_read_search --ambient-caps=-all,+dac_read_search"
BECOME = f'exec setpriv --reuid {UID} --regid {UID} --clear-groups {READS} "$@"'
"""No control groups, and no right but to read: this program's files may be somebody's own."""


@pytest.fixture
def theirs() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        os.chown(folder, int(UID), int(UID))
        yield Path(folder)


def run_as_another(before: str, theirs: Path, *choice: str) -> None:
    if os.geteuid() != 0:
        pytest.skip("an ordinary user runs all of them as one anyway")
    if shutil.which("setpriv") is None:
        pytest.skip("util-linux has no setpriv here")
    command = [
        "unshare",
        "--mount",
        "sh",
        "-c",
        f"{ALONE} && {before} {BECOME}",
        "become",
        sys.executable,
        "-m",
        "pytest",
    ]
    command += ["-q", "-p", "no:cacheprovider", "--basetemp", str(theirs / "tmp"), "--ignore", __file__, *choice]
    env = {**os.environ, "HOME": str(theirs), "PYTHONDONTWRITEBYTECODE": "1"}
    ended = subprocess.run(
        command, cwd=HERE.parents[2], env=env, capture_output=True, text=True, timeout=300, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert " passed" in ended.stdout


@needs_python
def test_probes_by_an_ordinary_user(theirs: Path, tmp_path: Path) -> None:
    """To whom nobody gave a range of ids."""
    sandbox_or_skip(tmp_path)
    run_as_another("", theirs, "-k", PROBES, str(HERE))


@needs_python
def test_boxes_of_an_ordinary_user_with_a_range_of_ids(theirs: Path, tmp_path: Path) -> None:
    sandbox_or_skip(tmp_path)
    if shutil.which("newuidmap") is None:
        pytest.skip("uidmap is not installed: boxes of an ordinary user have nobody but root here")
    user = f"user:x:{UID}:{UID}::/:/bin/sh\n"
    said = {
        "passwd": Path("/etc/passwd").read_text() + user,
        "subuid": f"{UID}:300000:65536",
        "subgid": f"{UID}:300000:65536",
    }
    before = ""
    for name, text in said.items():
        (tmp_path / name).write_text(text)
        before += f"mount --bind {tmp_path / name} /etc/{name} && "
    run_as_another(before, theirs, "-k", WITH_USERS, *map(str, FILES))
