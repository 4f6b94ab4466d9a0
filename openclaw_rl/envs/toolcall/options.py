"""Where tasks come from, and how they are posed: a source by its name, or a file that says more.

sums-2                        a family at a level           tasks.jsonl     tasks of the user's own
gym:chain_sum                 a dataset of reasoning-gym    hard.json       any of these, with options:

{"family": "sums", "level": 3, "seed": 7, "num_train": 500, "shots": 0, "system": "prompt.txt", "reward": "shaped"}
{"tasks": "tasks.jsonl", "tools": ["python", "weather"], "reward": "rewards.py:mine"}
{"gym": "chain_sum", "config": {"min_terms": 2}, "tools": ["calculator"]}
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, PositiveInt, ValidationError, model_validator

from openclaw_rl.errors import TaskError
from openclaw_rl.types import Json

GYM = "gym:"

_Count = Annotated[int, Field(ge=0, le=20_000)]


class SourceOptions(BaseModel):
    """One of `family`, `tasks` and `gym`, and what else is said about it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    family: str | None = None
    level: PositiveInt = 1
    shots: NonNegativeInt | None = None

    tasks: Path | None = None

    gym: str | None = None
    config: Mapping[str, Json] = Field(default_factory=dict)

    seed: NonNegativeInt = 0
    num_train: _Count = 200
    num_held_out: _Count = 50

    tools: tuple[str, ...] | None = None
    system: Path | None = None
    reward: Annotated[str, Field(min_length=1)] = "correct"

    @model_validator(mode="after")
    def _says_what_has_an_effect(self) -> Self:
        kinds = [name for name in ("family", "tasks", "gym") if getattr(self, name) is not None]
        if len(kinds) != 1:
            raise ValueError("a source names one of family, tasks and gym")
        foreign = {
            "family": {"config", "tools"},
            "tasks": {"level", "shots", "config", "seed", "num_train", "num_held_out"},
            "gym": {"level", "shots"},
        }[kinds[0]]
        if wrong := sorted(foreign & self.model_fields_set):
            raise ValueError(f"{wrong[0]} says nothing about a source of {kinds[0]}; remove it")
        return self


def read_options(source: str) -> SourceOptions:
    """What a source is; `TaskError` says what is wrong with it. A family's name may end in its level."""
    if source.startswith(GYM):
        return SourceOptions(gym=source.removeprefix(GYM))
    if source.endswith(".jsonl"):
        return SourceOptions(tasks=Path(source))
    if source.endswith(".json"):
        return _read_file(Path(source))
    family, _, level = source.rpartition("-")
    if family and level.isdigit() and int(level) > 0:
        return SourceOptions(family=family, level=int(level))
    return SourceOptions(family=source)


def _read_file(path: Path) -> SourceOptions:
    """The paths in it are relative to it."""
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
        options = SourceOptions.model_validate(raw)
    except OSError as error:
        raise TaskError(f"{path} cannot be read: {error.strerror}") from None
    except ValidationError as error:
        fault = error.errors()[0]
        where = ".".join(map(str, fault["loc"]))
        raise TaskError(f"{path}: {where}{': ' if where else ''}{fault['msg'].removeprefix('Value error, ')}") from None
    except (ValueError, RecursionError) as error:
        raise TaskError(f"{path} is not JSON: {error}") from None
    return options.model_copy(
        update={
            name: path.parent / named for name in ("tasks", "system") if (named := getattr(options, name)) is not None
        }
    )
