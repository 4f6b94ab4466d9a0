"""A row -> two trees: the one the agent gets, and the one its work is graded in. It does not know who asks.

The repository is looked for in the folder `repos` beside the file of tasks:

    repos/owner__name or repos/owner__name.git   a clone; the tree is that of the row's commit, and `test_patch` brings
                                                 the tests
    repos/owner__name without .git               a plain folder, for rows without a commit: the tree as it is *solved*.
                                                 `patch` is taken back, and the files of the failing tests are brought

The agent's tree holds none of the tests that are brought. Its git history is one commit without a past, and all its
files are of the same age, so that nothing tells which one was touched last.
Both are made in a box, since a clone's settings may name programs to run; then they are kept in the cache.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from openclaw_rl.envs.sandbox.box import Box, BoxLimits, BoxSpec, Sandbox
from openclaw_rl.envs.swe.patches import changes
from openclaw_rl.envs.swe.rows import Row, file_of
from openclaw_rl.envs.swe.suite import TESTBED
from openclaw_rl.errors import TaskError

MAX_TREE_MB = 2048
_STEP_S = 300.0
_AGE = 1_600_000_000
_WHO = "-c user.name=base -c user.email=base@localhost"
GIT_ENV: Mapping[str, str] = {
    "GIT_CONFIG_COUNT": "1",
    "GIT_CONFIG_KEY_0": "safe.directory",
    "GIT_CONFIG_VALUE_0": "*",
    "GIT_CONFIG_NOSYSTEM": "1",
}
"""For git in a box, whoever the files belong to there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trees:
    """Two folders here, only read: what the agent gets, and the same with all tests."""

    agent: Path
    graded: Path

    def brought(self) -> frozenset[str]:
        """The files that the tests bring. Blocking."""
        return frozenset(change.path for change in changes(self.agent, self.graded))


def find_repository(row: Row, repos: Path) -> Path:
    """The clone or folder of a row's repository. `TaskError` says what is missing, and how to get it."""
    places = [repos / row.folder, repos / f"{row.folder}.git"]
    found = next((place for place in places if place.is_dir()), None)
    if found is None:
        raise TaskError(
            f"{row.instance_id} needs the repository {row.repo}, which is not in {repos}; clone it: "
            f"git clone --bare URL {places[1]}"
        )
    if found.is_symlink():
        raise TaskError(f"{found} is a link, and tasks may not name other folders; put a clone in its place")
    if _git_folder(found) is None and row.base_commit:
        raise TaskError(f"{row.instance_id} needs commit {row.base_commit[:12]}, but {found} is no git repository")
    if _git_folder(found) is not None and not row.base_commit:
        raise TaskError(f"{row.instance_id} names no commit, but {found} is a git repository; name one")
    return found


async def make_trees(row: Row, repository: Path, *, sandbox: Sandbox, cache: Path) -> Trees:
    """From the cache, or made now. Two that make the same do no harm."""
    folder = cache / "swe-trees" / await asyncio.to_thread(_key, row, repository)
    trees = Trees(agent=folder / "agent", graded=folder / "graded")
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".making-") as scratch:
            made = Path(scratch) / "trees"
            await _make(row, repository, Trees(agent=made / "agent", graded=made / "graded"), sandbox)
            await asyncio.to_thread(_put, made, folder)
    return trees


def import_roots(tree: Path) -> tuple[str, ...]:
    """Where a repository's modules are loaded from: its root, and the folders that hold packages without being one."""
    below = (name for name in ("src", "lib") if (tree / name).is_dir() and not (tree / name / "__init__.py").exists())
    return (".", *below)


async def apply_patch(box: Box, patch: str, *, backwards: bool = False) -> str:
    """Why it does not apply; empty if it did."""
    back = "-R " if backwards else ""
    ran = await box.run(
        f"cd {TESTBED} && git apply {back}--whitespace=nowarn -", timeout_s=_STEP_S, env=GIT_ENV, stdin=patch.encode()
    )
    return "" if ran.exit_code == 0 else ran.output.strip() or f"git apply: exit code {ran.exit_code}"


async def _make(row: Row, repository: Path, into: Trees, sandbox: Sandbox) -> None:
    git = _git_folder(repository)
    into.agent.parent.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as empty:
        start = Path(empty) if git else repository
        box = await sandbox.start(
            BoxSpec(
                trees={TESTBED: start},
                read_only={"/repository": git} if git else {},
                workdir=TESTBED,
                limits=BoxLimits(disk_mb=2 * MAX_TREE_MB),
            )
        )
        try:
            if git:
                await _from_commit(box, row, into)
            else:
                await _from_solved(box, row, into)
        finally:
            await box.close()


async def _from_commit(box: Box, row: Row, into: Trees) -> None:
    git = f"GIT_INDEX_FILE=/tmp/index git --git-dir=/repository --work-tree={TESTBED}"
    await _do(box, row, f"{git} cat-file -e '{row.base_commit}^{{commit}}'", "its commit is not in the clone; fetch it")
    await _do(box, row, f"{git} read-tree {row.base_commit} && {git} checkout-index -a -f", "its tree cannot be read")
    await _keep(box, row, into.agent, with_git=True)
    if row.test_patch and (why := await apply_patch(box, row.test_patch)):
        raise TaskError(f"{row.instance_id}: its test_patch does not apply: {why}")
    await _keep(box, row, into.graded)


async def _from_solved(box: Box, row: Row, into: Trees) -> None:
    if why := await apply_patch(box, row.patch, backwards=True):
        raise TaskError(f"{row.instance_id}: its patch cannot be taken back from the solved tree: {why}")
    await _keep(box, row, into.graded)
    hidden = b"".join(f"./{file}".encode() + b"\0" for file in {file_of(test) for test in row.fail_to_pass})
    await _do(box, row, "xargs -0 rm -f --", "the failing tests cannot be taken out", stdin=hidden)
    await _keep(box, row, into.agent, with_git=True)


async def _keep(box: Box, row: Row, to: Path, *, with_git: bool = False) -> None:
    command = "rm -rf .git"
    if with_git:
        command += " && git init -q -b main --template= . && git add -A -f ."
        command += f" && git {_WHO} commit -q --allow-empty -m base"
    await _do(box, row, command, "its tree cannot be put under git")
    await box.copy_out(TESTBED, to, max_bytes=MAX_TREE_MB << 20)


async def _do(box: Box, row: Row, command: str, trouble: str, stdin: bytes = b"") -> None:
    dates = {"GIT_AUTHOR_DATE": f"{_AGE} +0000", "GIT_COMMITTER_DATE": f"{_AGE} +0000"}
    ran = await box.run(f"cd {TESTBED} && {command}", timeout_s=_STEP_S, env={**GIT_ENV, **dates}, stdin=stdin)
    if ran.exit_code == 127:
        raise TaskError(f"{row.instance_id} needs git, which is not on this machine; install it")
    if ran.exit_code != 0:
        raise TaskError(f"{row.instance_id}: {trouble}: {ran.output.strip() or ran.exit_code}")


def _put(made: Path, folder: Path) -> None:
    """Gives all files one age, and the whole its place, unless somebody was quicker."""
    for place, _, files in os.walk(made):
        for path in (Path(place), *(Path(place) / name for name in files)):
            os.utime(path, (_AGE, _AGE), follow_symlinks=False)
    try:
        made.rename(folder)
    except OSError:
        if not folder.exists():
            raise


def _git_folder(repository: Path) -> Path | None:
    for place in (repository / ".git", repository):
        if (place / "HEAD").is_file() and (place / "objects").is_dir():
            return place
    return None


def _key(row: Row, repository: Path) -> str:
    """What the trees are made of: the row, and the files of a plain folder. A commit's name says what is in it."""
    hidden = sorted({file_of(test) for test in row.fail_to_pass})
    parts = [row.repo, row.base_commit, row.patch, row.test_patch, *hidden]
    if not row.base_commit:
        for folder, folders, files in os.walk(repository):
            folders.sort()
            for path in (Path(folder) / name for name in sorted(files)):
                found = path.lstat()
                parts.append(f"{path.relative_to(repository)} {found.st_size} {found.st_mtime_ns}")
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogateescape")).hexdigest()[:32]
