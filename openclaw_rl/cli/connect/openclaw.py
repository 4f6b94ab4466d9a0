"""OpenClaw's settings, through its own program: `openclaw config get | set | unset`, never by writing its file.

What is set has a key in it, and everybody on a machine may read the arguments of a program: values go through a
private file (`--batch-file`).
OpenClaw guards its file: one that shrank much is put back from a backup at the next start, and a large `unset` is
refused. What `get` prints has no secrets in it: a provider that is not ours could not be restored, and is not touched.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from openclaw_rl.cli.connect.clients import masked
from openclaw_rl.clients import PROVIDER, Served, openclaw_provider
from openclaw_rl.errors import ConfigError, OpenClawError
from openclaw_rl.types import Json

_PROVIDER_PATH = f"models.providers.{PROVIDER}"
_MODEL_PATH = "agents.defaults.model"
_BATCH_FILE = "openclaw-rl.json"
_TIMEOUT_S = 180.0


class ProgramFailed(OpenClawError):
    """The client's own program did not do what it was asked."""


def run_program(
    command: Sequence[str], *, timeout_s: float, cwd: str | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs a client's program to its end, with nothing to read; `ProgramFailed` if it does not start or end."""
    try:
        return subprocess.run(
            command, cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout_s, check=False
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise ProgramFailed(f"{command[0]} could not be run: {type(error).__name__}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One setting: what it becomes, and what it was. `was_set` False: there was none."""

    path: str
    value: Json
    before: Json = None
    was_set: bool = False


def wanted(served: Served) -> list[Change]:
    """The settings of an OpenClaw that nothing is known about, the provider before the model that is one of it."""
    return [
        Change(path=_PROVIDER_PATH, value=openclaw_provider(served)),
        Change(path=f"{_MODEL_PATH}.primary", value=served.named),
    ]


def set_words(file: Path | str, *flags: str) -> list[str]:
    """The arguments of `openclaw` that make the changes in a file."""
    return ["config", "set", "--batch-file", str(file), *flags]


def batch(changes: Sequence[Change]) -> str:
    """What stands in that file."""
    return json.dumps([{"path": change.path, "value": change.value} for change in changes], ensure_ascii=False)


def as_command(words: Sequence[str]) -> str:
    """Arguments as a person types them."""
    return shlex.join(["openclaw", *words])


def as_commands(changes: Sequence[Change]) -> str:
    """What a person types to make changes; only that person can read the file, which is gone at the end."""
    lines = (f"(umask 077; cat > {_BATCH_FILE}) <<'END'", batch(changes), "END", as_command(set_words(_BATCH_FILE)))
    return "".join(f"{line}\n" for line in (*lines, f"rm {_BATCH_FILE}"))


def set_text(path: str, value: Json) -> str:
    """A change as one line for a person to read; it holds the key, where there is one."""
    return as_command(["config", "set", path, json.dumps(value, ensure_ascii=False), "--strict-json"])


def undo_text(change: Change) -> str:
    """What takes a change back."""
    return set_text(change.path, change.before) if change.was_set else as_command(["config", "unset", change.path])


class OpenClaw:
    """The program, found on the PATH."""

    def __init__(self, program: str) -> None:
        self._program = program

    def plan(self, served: Served, ours: Sequence[Change]) -> list[Change]:
        """What to set, with what is there now. `ours` is what an earlier connection set."""
        mine = {change.path: change for change in ours}
        provider, primary = wanted(served)
        is_set, _ = self._get(provider.path)
        if is_set and provider.path not in mine:
            raise ConfigError(
                f"OpenClaw has a provider {PROVIDER!r} already, and it was not made here; "
                f"look at it with `openclaw config get {provider.path}`, and rename or unset it first"
            )
        is_set, model = self._get(_MODEL_PATH)
        if isinstance(model, str):  # both ways of writing it are in use
            primary = Change(path=_MODEL_PATH, value=primary.value)
        elif isinstance(model, dict):
            is_set, model = "primary" in model, model.get("primary")
        earlier = mine.get(primary.path)
        if earlier is not None and is_set and model == earlier.value:
            is_set, model = earlier.was_set, earlier.before
        return [provider, Change(path=primary.path, value=primary.value, before=model, was_set=is_set)]

    def apply(self, changes: Sequence[Change], ours: Sequence[Change]) -> None:
        """Sets everything, and if something is refused takes back what was set."""
        mine = {change.path for change in ours}
        done: list[Change] = []
        for change in changes:
            try:
                self._set(change, *(["--replace"] if change.path in mine else []))
            except ProgramFailed:
                self.remove(done)
                raise
            done.append(change)

    def remove(self, changes: Sequence[Change]) -> list[str]:
        """Takes back what is still as it was set, the model first; words for what somebody changed since."""
        left: list[str] = []
        for change in reversed(changes):
            is_set, now = self._get(change.path)
            if not is_set:
                continue
            if not _is_ours(change, now):
                left.append(f"{change.path} of OpenClaw, changed since")
                continue
            try:
                self._undo(change)
            except ProgramFailed:
                if change.path != _PROVIDER_PATH:
                    raise
                # Most of a small file would go at once; in two steps it may.
                self._set(Change(path=f"{change.path}.models", value=[]), "--replace")
                self._undo(change)
            if change.path == f"{_MODEL_PATH}.primary" and self._get(_MODEL_PATH) == (True, {}):
                self._run(["config", "unset", _MODEL_PATH])
        return left

    def _get(self, path: str) -> tuple[bool, Json]:
        """Whether a path is set, and to what."""
        done = self._call(["config", "get", path, "--json"])
        said = (done.stdout + done.stderr).lower()
        if done.returncode == 0:
            try:
                return True, json.loads(done.stdout)
            except ValueError:
                pass
        elif "unset" in said or "not found" in said:
            return False, None
        raise _failure(f"config get {path}", done)

    def _set(self, change: Change, *flags: str) -> None:
        with tempfile.TemporaryDirectory(prefix="openclaw-rl-") as folder:  # only its owner may look into it
            file = Path(folder, _BATCH_FILE)
            file.touch(mode=0o600)
            file.write_text(batch([change]), encoding="utf-8")
            self._run(set_words(file, *flags), f"config set {change.path}")

    def _undo(self, change: Change) -> None:
        if change.was_set:
            self._set(Change(path=change.path, value=change.before))
        else:
            self._run(["config", "unset", change.path])

    def _run(self, words: list[str], said: str | None = None) -> None:
        done = self._call(words)
        if done.returncode != 0:
            raise _failure(said or shlex.join(words), done)

    def _call(self, words: list[str]) -> subprocess.CompletedProcess[str]:
        return run_program([self._program, *words], timeout_s=_TIMEOUT_S)


def _is_ours(change: Change, now: Json) -> bool:
    """Whether a setting is as we made it; a provider is known by its address, as its key is not shown."""
    if isinstance(change.value, dict) and isinstance(now, dict):
        return bool(change.value.get("baseUrl") == now.get("baseUrl"))
    return bool(change.value == now)


def _failure(command: str, done: subprocess.CompletedProcess[str]) -> ProgramFailed:
    said = (done.stderr.strip() or done.stdout.strip() or f"exit status {done.returncode}").splitlines()
    return ProgramFailed(f"`openclaw {command}` failed: {masked(said[-1])}")
