"""A family makes problems from a seed; a set of tasks is a family at one level.

make_set(SUMS, level=1, seed=0, num_train=200, num_held_out=50, shots=3)  ->  sums-1-train-0, …, sums-1-held-out-49
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.resources import files
from itertools import islice
from random import Random

from openclaw_rl.envs.toolcall.tasks import Problem, ToolTask, demonstrate
from openclaw_rl.errors import TaskError
from openclaw_rl.types import Split

_MOST_REPEATS = 200

Make = Callable[[Random, Split, int], Iterator[Problem]]
"""Problems of a split at a level, that share their tools. The first is the task, those after it are its examples."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """`about` is for people who choose; `prompt` is the file of its system message."""

    name: str
    about: str
    prompt: str
    num_levels: int
    make: Make


def shipped(file: str) -> str:
    """The text of a file of this track, such as prompts/answer.txt."""
    return files("openclaw_rl.envs.toolcall").joinpath(file).read_text(encoding="utf-8").strip()


def make_set(
    family: Family, *, level: int, seed: int, num_train: int, num_held_out: int, shots: int, system: str = ""
) -> list[ToolTask]:
    """The tasks of a family at a level. `system` replaces the family's own system message."""
    if not 1 <= level <= family.num_levels:
        raise TaskError(f"{family.name} has the levels 1 to {family.num_levels}, not {level}")
    opening = system or shipped(f"prompts/{family.prompt}")
    counts: tuple[tuple[Split, int], ...] = (("train", num_train), ("held_out", num_held_out))
    return [
        ToolTask(
            name=f"{family.name}-{level}-{split.replace('_', '-')}-{number}",
            split=split,
            problem=problem,
            system=opening,
            shots=demonstrate(examples),
        )
        for split, count in counts
        for number, (problem, *examples) in enumerate(_different(family, split, level, seed, count, shots))
    ]


def _different(family: Family, split: Split, level: int, seed: int, count: int, shots: int) -> Iterator[list[Problem]]:
    """Problems that were not asked before, each with its examples. Every one has a seed of its own, so that it stays
    the same in a larger set and with more examples."""
    asked: set[tuple[object, ...]] = set()
    for number in range(count):
        for repeat in range(_MOST_REPEATS):
            problems = family.make(Random(f"{family.name} {split} {level} {seed} {number} {repeat}"), split, level)
            problem = next(problems)
            if (problem.question, problem.solution) not in asked:
                break
        else:
            raise TaskError(
                f"{family.name} has about {len(asked)} different problems at level {level}; ask for fewer than {count}"
            )
        asked.add((problem.question, problem.solution))
        others = (other for other in problems if other.question != problem.question)
        yield [problem, *islice(others, shots)]
