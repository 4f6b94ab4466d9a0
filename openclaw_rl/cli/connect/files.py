"""A client's settings file -> the same with our settings in it -> the same as before, whatever else changed meanwhile.

JSON is changed as a tree. TOML and YAML are changed as text, so that every other byte stays: a marked block, and keys
that it replaces as comments; what comes out is read back by its own format before it is believed. Knows no client.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
import tomllib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml

from openclaw_rl.errors import ConfigError
from openclaw_rl.types import Json

_MARK = "# openclaw-rl wrote this; `openclaw-rl connect {client} --remove` takes it out again"
_OFF = "# off while openclaw-rl is connected: "
_ABSENT = object()
_LOADERS: Mapping[str, Callable[[str], Any]] = {"toml": tomllib.loads, "yaml": yaml.safe_load, "json": json.loads}

Format = Literal["json", "toml", "yaml"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What a client is to find in one of its files.

    `values` by their paths, each replaced whole. TOML and YAML say themselves how they are written: `head` goes to the
    top of the file, `tail` to its end.
    """

    path: Path
    form: Format
    values: Mapping[tuple[str, ...], Json]
    head: Sequence[str] = ()
    tail: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """A file before and after; `blocks` are the pieces of text that are ours, `mode` what its permissions were."""

    path: Path
    form: Format
    before: str | None
    after: str
    mode: int | None = None
    blocks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesRestored:
    """The text without our settings, None for no file; `left` names what somebody else changed since."""

    text: str | None
    left: tuple[str, ...] = ()


def real_path(path: Path) -> Path:
    """Where a file is really kept: people link their settings from elsewhere."""
    return Path(os.path.realpath(path))


def read_text(path: Path) -> str | None:
    """A file to the byte; None if there is none."""
    try:
        return path.read_bytes().decode("utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read ({error})") from error


def write_text(path: Path, text: str | None, mode: int) -> None:
    """All of it or nothing of it; None takes the file away."""
    try:
        if text is None:
            path.unlink(missing_ok=True)
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, scratch = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(text.encode("utf-8"))
                file.flush()
                os.fsync(file.fileno())
            os.chmod(scratch, mode)
            os.replace(scratch, path)
        except BaseException:
            with suppress(OSError):
                os.unlink(scratch)
            raise
    except OSError as error:
        raise ConfigError(f"{path} cannot be written ({error.strerror}); see the settings with --print") from error


def mode_of(path: Path) -> int | None:
    try:
        return path.stat().st_mode & 0o777
    except OSError:
        return None


def refuse_read_only(path: Path) -> None:
    """A file that its owner protected is not replaced behind his back, which his folder would allow."""
    mode = mode_of(path)
    if mode is not None and not mode & 0o200:
        raise ConfigError(
            f"{path} is left alone: it is read-only; `chmod u+w` it first, or see the settings with --print"
        )


def plan_edit(settings: Settings, client: str, text: str | None, mode: int | None) -> Edit:
    """`text` is the file without us. A file that we cannot change without harm is refused, with words."""
    path = real_path(settings.path)
    old = _load(path, settings.form, text)
    wanted = _with_values(path, old, settings.values)
    if settings.form == "json":
        after = _dump_json(wanted, text)
        return Edit(path=path, form="json", before=text, after=after, mode=mode)
    kept = _switched_off(text or "", settings)
    mark = _MARK.format(client=client)
    head = "\n".join([mark, *settings.head, "", ""]) if settings.head else ""
    tail = ("" if not kept or kept.endswith("\n") else "\n") + ("\n" if kept.strip() else "")
    tail = tail + "\n".join([mark, *settings.tail, ""])
    after = head + kept + tail
    try:
        is_meant = _LOADERS[settings.form](after) == wanted
    except (ValueError, yaml.YAMLError):
        is_meant = False
    if not is_meant:
        names = ", ".join(".".join(key) for key in settings.values)
        raise ConfigError(
            f"{path} cannot be changed without harm: it says something of its own about {names}; "
            f"change it yourself, `openclaw-rl connect {client} --print` shows the lines"
        )
    blocks = (head, tail) if head else (tail,)
    return Edit(path=path, form=settings.form, before=text, after=after, mode=mode, blocks=blocks)


def undo(edit: Edit, now: str | None) -> FilesRestored:
    """What the file is without us: as it was before if nobody touched it since, else all that others changed stays."""
    if now in (edit.before, edit.after):
        return FilesRestored(text=edit.before)
    if now is None:
        return FilesRestored(text=None)
    try:
        if edit.form == "json":
            return _undo_tree(edit, now)
        return _undo_text(edit, now)
    except (ValueError, yaml.YAMLError):
        return FilesRestored(text=now, left=(f"{edit.path}, which cannot be read as {edit.form.upper()} any more",))


def _load(path: Path, form: Format, text: str | None) -> dict[str, Any]:
    try:
        read = {} if text is None or not text.strip() else _LOADERS[form](text)
    except (ValueError, yaml.YAMLError) as error:
        why = "comments, or something else that is no plain JSON" if form == "json" else str(error).splitlines()[0]
        raise ConfigError(f"{path} is left alone: it has {why}; see the settings with --print") from None
    read = {} if read is None else read
    if not isinstance(read, dict):
        raise ConfigError(f"{path} is left alone: it holds no settings by name; see the settings with --print")
    return read


def _with_values(path: Path, old: Mapping[str, Any], values: Mapping[tuple[str, ...], Json]) -> dict[str, Any]:
    tree: dict[str, Any] = _copied(old)
    for names, value in values.items():
        node = tree
        for name in names[:-1]:
            node = node.setdefault(name, {})
            if not isinstance(node, dict):
                raise ConfigError(f"{path} is left alone: {name} holds no settings by name there")
        node[names[-1]] = value
    return tree


def _copied(tree: Any) -> Any:
    return {name: _copied(value) for name, value in tree.items()} if isinstance(tree, dict) else tree


def _dump_json(tree: Json, like: str | None) -> str:
    """JSON that is indented as the text before it was."""
    found = re.search(r"^([ \t]+)\S", like or "", re.MULTILINE)
    end = "" if like and not like.endswith("\n") else "\n"
    written = json.dumps(tree, ensure_ascii=False, indent=found[1] if found else 2) + end
    return written.encode("utf-8", "backslashreplace").decode()  # half a character can only be written as an escape


def _switched_off(text: str, settings: Settings) -> str:
    """The text with the keys that ours replace as comments."""
    keys = "|".join(re.escape(path[0]) for path in settings.values if len(path) == 1)
    own = re.compile(rf"(?:{keys})[ \t]*[=:]")
    lines: list[str] = []
    is_top = True
    for line in text.splitlines(keepends=True):
        if settings.form == "toml" and line.lstrip().startswith("["):
            is_top = False  # the same name below a table's heading is another key
        lines.append(_OFF + line if is_top and own.match(line) else line)
    return "".join(lines)


def _undo_tree(edit: Edit, now: str) -> FilesRestored:
    left: list[str] = []
    before = _ABSENT if edit.before is None else _load(edit.path, "json", edit.before)
    tree = _without(before, json.loads(edit.after), json.loads(now), (), left)
    text = None if tree is _ABSENT else _dump_json(tree, now)
    return FilesRestored(text=text, left=tuple(f"{name} in {edit.path}, changed since" for name in left))


def _without(before: Any, after: Any, now: Any, at: tuple[str, ...], left: list[str]) -> Any:
    """`now` with everything that we changed from `before` to `after` as it was, unless somebody changed it since."""
    if now == after:
        return before
    if isinstance(after, dict) and isinstance(now, dict):
        old = before if isinstance(before, dict) else {}
        kept = dict(now)
        for name, value in after.items():
            was = old.get(name, _ABSENT)
            if was == value:
                continue
            found = _without(was, value, now.get(name, _ABSENT), (*at, name), left)
            if found is not _ABSENT:
                kept[name] = found
            else:
                kept.pop(name, None)
        return _ABSENT if before is _ABSENT and not kept else kept
    if now != before:
        left.append(".".join(at) or "everything")
    return now


def _undo_text(edit: Edit, now: str) -> FilesRestored:
    left: list[str] = []
    freed: set[str] = set()
    text = now
    for block in edit.blocks:
        lines = [line for line in block.splitlines() if line.strip()]
        is_table = any(line.startswith("[") for line in lines)  # goes whole or not at all
        for part in [block if block in text else block.strip("\n")] if is_table or block in text else lines:
            gone = re.compile(rf"^{re.escape(part)}(?:\n|\Z)" if part in lines else re.escape(part), re.MULTILINE)
            text, count = gone.subn("", text, count=1)
            if count:
                freed |= {_key(line) for line in part.splitlines()}
            elif is_table:
                left.append(next(line for line in lines if line.startswith("[")))
            elif not part.startswith("#"):
                left.append(_key(part))
    kept = text.splitlines(keepends=True)
    # A key that somebody set anew is not switched on a second time.
    text = "".join(line.removeprefix(_OFF) if _key(line.removeprefix(_OFF)) in freed else line for line in kept)
    _LOADERS[edit.form](text)
    words = tuple(f"{name} in {edit.path}, changed since" for name in left)
    return FilesRestored(text=None if edit.before is None and not text.strip() else text, left=words)


def _key(line: str) -> str:
    """The key that a line sets."""
    found = re.match(r"[\w-]+", line)
    return found[0] if found else ""
