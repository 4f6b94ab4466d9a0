"""A file of records in SWE-bench's format -> rows. It does not know where their repositories come from.

    {"instance_id": "pocket-0.1-7", "repo": "pocket-0.1", "base_commit": "", "problem_statement": "…", "patch": "…",
     "test_patch": "", "FAIL_TO_PASS": ["tests/test_text.py::test_wrap"], "PASS_TO_PASS": […], "split": "train"}

The two lists may also be JSON in a string, as SWE-bench has them. `split` is ours and optional: without it every fifth
repository is held out, always the same ones. An empty `base_commit` is ours too: `trees` says what it means. Keys that
we do not need are ignored.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, Field, ValidationError

from openclaw_rl.errors import TaskError
from openclaw_rl.types import Json, Split

_HELD_OUT_EVERY = 5
REPO_NAME = r"[A-Za-z0-9][A-Za-z0-9_.+-]*"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A task. `patch` is the author's solution; `image` an image that its packages are in; `split` None: not said.

    `packages`: it was made for packages of its own (`environment_setup_commit` or an image), so that an interpreter
    with nothing but pytest is the wrong one.
    """

    instance_id: str
    repo: str
    base_commit: str
    problem_statement: str
    patch: str
    test_patch: str
    fail_to_pass: tuple[str, ...]
    pass_to_pass: tuple[str, ...]
    split: Split | None = None
    version: str = ""
    image: str = ""
    packages: bool = False

    @property
    def folder(self) -> str:
        """The repository's name as a folder's: `owner__name`."""
        return self.repo.replace("/", "__")

    @property
    def tests(self) -> tuple[str, ...]:
        return self.fail_to_pass + self.pass_to_pass

    @property
    def patched_files(self) -> frozenset[str]:
        """The files that the author's solution changes."""
        named = re.compile(r"^(?:\+\+\+ b/|--- a/|rename from |rename to )(.+?)\t?$", re.MULTILINE)
        return frozenset(named.findall(self.patch))

    def to_json(self) -> dict[str, Json]:
        """The record, as `read_rows` reads it."""
        return {
            "instance_id": self.instance_id,
            "repo": self.repo,
            "base_commit": self.base_commit,
            "problem_statement": self.problem_statement,
            "patch": self.patch,
            "test_patch": self.test_patch,
            "FAIL_TO_PASS": list(self.fail_to_pass),
            "PASS_TO_PASS": list(self.pass_to_pass),
            "split": self.split,
            "version": self.version,
        }


def file_of(test: str) -> str:
    """The file that a test's id names."""
    return test.partition("::")[0]


def read_rows(file: Path) -> list[Row]:
    """All rows of a .jsonl file, or of a .json file with a list. `TaskError` names the record at fault."""
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise TaskError(f"the tasks in {file} cannot be read: {error}") from error
    rows = [_row(raw, f"{file.name}, record {number}") for number, raw in enumerate(_records(file, text), start=1)]
    if not rows:
        raise TaskError(f"{file} holds no tasks; expected records with instance_id, repo, base_commit, …")
    names = [row.instance_id for row in rows]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise TaskError(f"{file} holds {', '.join(twice)} more than once; every task has an instance_id of its own")
    return _split(rows)


def write_rows(file: Path, rows: Sequence[Row]) -> None:
    """The rows as a .jsonl file, whole or not at all."""
    part = file.with_suffix(".part")
    part.write_text("".join(json.dumps(row.to_json(), ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    part.replace(file)


def _records(file: Path, text: str) -> list[Json]:
    try:
        if file.suffix == ".json":
            found = json.loads(text)
            return found if isinstance(found, list) else [found]
        return [json.loads(line) for line in text.split("\n") if line.strip()]
    except json.JSONDecodeError as error:
        raise TaskError(
            f"{file} is not JSON ({error}); expected one record a line, or a list in a .json file"
        ) from error


def _from_text(value: object) -> object:
    return json.loads(value) if isinstance(value, str) else value


_Tests = Annotated[tuple[str, ...], BeforeValidator(_from_text)]
_Name = Annotated[str, Field(pattern=f"^{REPO_NAME}$", max_length=128)]
_Repo = Annotated[str, Field(pattern=f"^{REPO_NAME}(/{REPO_NAME})?$", max_length=128)]
_Commit = Annotated[str, Field(pattern=r"^[0-9a-f]{7,64}$|^$")]


class _Record(BaseModel):
    instance_id: _Name
    repo: _Repo
    base_commit: _Commit
    problem_statement: Annotated[str, Field(min_length=1)]
    patch: str = ""
    test_patch: str = ""
    fail_to_pass: _Tests = Field(alias="FAIL_TO_PASS", min_length=1)
    pass_to_pass: _Tests = Field(alias="PASS_TO_PASS")
    split: Literal["train", "held_out"] | None = None
    version: str | None = None
    environment_setup_commit: str | None = None
    image_name: str | None = None


def _row(raw: Json, where: str) -> Row:
    try:
        record = _Record.model_validate(raw)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise TaskError(f"{where}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from error
    return Row(
        instance_id=record.instance_id,
        repo=record.repo,
        base_commit=record.base_commit,
        problem_statement=record.problem_statement,
        patch=record.patch,
        test_patch=record.test_patch,
        fail_to_pass=record.fail_to_pass,
        pass_to_pass=record.pass_to_pass,
        split=record.split,
        version=record.version or "",
        image=record.image_name or "",
        packages=bool(record.image_name or record.environment_setup_commit),
    )


def _split(rows: list[Row]) -> list[Row]:
    """Rows that do not say their split get that of their repository: train and held-out never share one."""
    unsaid = {row.repo for row in rows if row.split is None}
    repos = sorted(unsaid, key=lambda repo: hashlib.sha256(repo.encode()).digest())
    held_out = set(repos[::_HELD_OUT_EVERY]) if len(repos) > 1 else set()
    return [row if row.split else replace(row, split="held_out" if row.repo in held_out else "train") for row in rows]
