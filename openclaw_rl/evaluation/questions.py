"""What simulated users ask: `questions.toml` -> questions for lessons and, apart from them, questions to measure with.

The two splits share no topic and no wording: better answers to held-out questions are a habit, not a memory. Knows
nothing of who asks and of what a good reply is, but for the number that a sum comes to.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import zip_longest
from pathlib import Path
from typing import Any, Literal, get_args

from openclaw_rl.errors import ConfigError
from openclaw_rl.types.checks import require

QUESTIONS_FILE = Path(__file__).with_name("questions.toml")

Split = Literal["train", "held_out"]
Kind = Literal["open", "how_to", "sum", "writing"]
SPLITS: tuple[Split, ...] = get_args(Split)
KINDS: tuple[Kind, ...] = get_args(Kind)


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A first message. `number` is what a sum comes to, and None where a reply cannot be checked that way."""

    kind: Kind
    topic: str
    text: str
    number: float | None = None

    def __post_init__(self) -> None:
        require(self.kind in KINDS, f"kind must be one of {', '.join(KINDS)}, got {self.kind!r}")
        require(bool(self.topic.strip()) and bool(self.text.strip()), "a question needs a topic and a text")
        has_number = isinstance(self.number, int | float) and not isinstance(self.number, bool)
        require(has_number == (self.kind == "sum"), f"a sum has its number, and nothing else has one: {self.text!r}")


def load_questions(split: Split, path: Path = QUESTIONS_FILE) -> tuple[Question, ...]:
    """The questions of a split, the kinds in turn: the first few are of every kind. ConfigError: the file is wrong."""
    if split not in SPLITS:
        raise ConfigError(f"there is no split {split!r} of the questions; splits are {', '.join(SPLITS)}")
    return _read(path)[split]


@lru_cache(maxsize=4)
def _read(path: Path) -> Mapping[Split, tuple[Question, ...]]:
    try:
        raw = tomllib.loads(path.read_text(encoding="utf-8"))
        if set(raw) != set(SPLITS):
            raise ValueError(f"its tables must be {', '.join(SPLITS)}, got {', '.join(raw) or 'none'}")
        splits = {split: _split(split, raw[split]) for split in SPLITS}
        _check_apart(splits)
    except (OSError, ValueError) as error:
        raise ConfigError(f"the questions in {path} cannot be used: {error}") from error
    return splits


def _split(split: Split, raw: Mapping[str, Sequence[Sequence[Any]]]) -> tuple[Question, ...]:
    require(set(raw) == set(KINDS), f"[{split}] must have {', '.join(KINDS)}, got {', '.join(raw) or 'none'}")
    by_kind = [[_question(kind, row) for row in raw[kind]] for kind in KINDS]
    return tuple(question for row in zip_longest(*by_kind) for question in row if question is not None)


def _question(kind: Kind, row: Sequence[Any]) -> Question:
    match row:
        case [str(topic), str(text)]:
            return Question(kind=kind, topic=topic, text=text)
        case [str(topic), str(text), int() | float() as number]:
            return Question(kind=kind, topic=topic, text=text, number=number)
    raise ValueError(f"a question is [topic, text] or [topic, text, number], got {row!r}")


def _check_apart(splits: Mapping[Split, tuple[Question, ...]]) -> None:
    """Neither a topic nor a text twice, be it in one split or in both."""
    questions = [question for split in SPLITS for question in splits[split]]
    for name, values in (("topic", [q.topic for q in questions]), ("question", [q.text for q in questions])):
        require(not (twice := _repeated(values)), f"the {name} {', '.join(map(repr, twice))} is there twice")


def _repeated(values: Iterable[str]) -> list[str]:
    seen: set[str] = set()
    return [value for value in values if (low := value.casefold().strip()) in seen or seen.add(low)]  # type: ignore[func-returns-value]
