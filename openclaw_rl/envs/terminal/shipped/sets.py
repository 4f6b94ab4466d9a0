"""The sets of tasks that we ship -> Harbor task directories in a cache, written once.

A set is the same everywhere: its tasks are drawn from seeds, and no two are the same.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files as resources
from pathlib import Path
from random import Random

from openclaw_rl.envs.terminal.shipped import commands, files
from openclaw_rl.envs.terminal.shipped.draft import Draft, write_task
from openclaw_rl.envs.terminal.shipped.words import TaskWords
from openclaw_rl.types import Split

Family = Callable[[TaskWords], Draft]

_MOST_DRAWN = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class ShippedSet:
    """`families` have `num_train` tasks each to train on and `num_held_out` others; `held_out_families` the latter
    alone."""

    about: str
    families: tuple[Family, ...]
    held_out_families: tuple[Family, ...]
    opening: str
    agent_s: int
    num_train: int
    num_held_out: int

    @property
    def total(self) -> dict[Split, int]:
        """How many tasks of each split."""
        held_out = len(self.families) + len(self.held_out_families)
        return {"train": self.num_train * len(self.families), "held_out": self.num_held_out * held_out}


SETS: Mapping[str, ShippedSet] = {
    "commands": ShippedSet(
        about="One short command each, with examples in the prompt.",
        families=commands.FAMILIES,
        held_out_families=commands.HELD_OUT_FAMILIES,
        opening="one_command",
        agent_s=60,
        num_train=40,
        num_held_out=12,
    ),
    "files": ShippedSet(
        about="Files to make, count, sort and edit in a shell.",
        families=files.FAMILIES,
        held_out_families=files.HELD_OUT_FAMILIES,
        opening="shell",
        agent_s=300,
        num_train=12,
        num_held_out=4,
    ),
}


def drafts(name: str) -> Iterator[tuple[str, Split, Draft]]:
    """The tasks of a set: name, split, draft."""
    shipped = SETS[name]
    for family in (*shipped.families, *shipped.held_out_families):
        splits: tuple[tuple[Split, int], ...] = (("train", shipped.num_train), ("held_out", shipped.num_held_out))
        for split, number in splits:
            if split == "train" and family in shipped.held_out_families:
                continue
            kind = family.__name__.replace("_", "-")
            made = _different(family, split, number, seed=f"{name} {kind}")
            for at, draft in enumerate(made, start=1):
                yield f"{kind}-{'h' * (split == 'held_out')}{at:02}", split, draft


def _different(family: Family, split: Split, number: int, *, seed: str) -> list[Draft]:
    """So many drafts that no two are the same."""
    found: dict[str, Draft] = {}
    for at in range(_MOST_DRAWN * number):
        draft = family(TaskWords(random=Random(f"{seed} {split} {at}"), split=split))
        found.setdefault(repr(draft), draft)
        if len(found) == number:
            return list(found.values())
    raise AssertionError(f"{family.__name__} asks fewer than {number} different things")


def written(name: str, cache: Path) -> Path:
    """The folder with the directories of a set; blocking the first time, for a second or so."""
    made = list(drafts(name))
    verifier = resources("openclaw_rl.envs.terminal.shipped").joinpath("verifier.sh").read_bytes()
    digest = hashlib.sha256(repr((SETS[name].opening, SETS[name].agent_s, made)).encode() + verifier).hexdigest()[:12]
    folder = cache / f"{name}-{digest}"
    if folder.is_dir():
        return folder
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache, prefix=".writing-") as begun:
        for task, split, draft in made:
            write_task(
                draft, Path(begun, "set", task), split=split, opening=SETS[name].opening, agent_s=SETS[name].agent_s
            )
        try:
            Path(begun, "set").rename(folder)
        except OSError:
            if not folder.is_dir():  # otherwise another process wrote the same
                raise
    return folder
