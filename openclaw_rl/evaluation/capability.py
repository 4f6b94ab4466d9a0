"""What a model knew and must still know: questions with one right and three wrong answers -> the share it gets right.

`capability.jsonl` has plain items: facts, sums, words, grammar, spelling, units, code. An item is right if the model
gives its answer a higher log-prob than each distractor, as the whole reply to the question in a chat; nothing is
sampled. Two versions are compared item by item, which finds changes that are far smaller than either interval.

The untouched SmolLM2-135M gets 55 % of the 636 items (95 % interval 51 to 59; guessing 25): 74 % in science, 68 % in
code, 42 % of the sums, 27 % in spelling, which says nothing of it yet. The rule was chosen on every third item: the sum
of an option's log-probs 60 %, their mean 51 %, the sum less that of the option after a question that asks for nothing
51 %, the first token alone 34 %. An instruction to answer in a phrase made no difference beyond chance (59 to 64 %), so
the question stands alone. The sequences have 104,000 tokens, about 14,000 without what they share: 44 s of a CPU core.
"""

from __future__ import annotations

import asyncio
import json
import math
import secrets
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from openclaw_rl.errors import EngineError
from openclaw_rl.evaluation.measures import Interval, paired_share_difference, share_interval
from openclaw_rl.protocols import Engine, Renderer
from openclaw_rl.types import SYSTEM_SALT, Json, Message, ScoreRequest
from openclaw_rl.types.checks import require

ITEMS_FILE = Path(__file__).with_name("capability.jsonl")
NUM_DISTRACTORS = 3

_NUM_AT_ONCE = 32
"""Items under way at a time: a GPU reads them side by side. The options of one go one after the other, so that the
second finds the question computed: all four together would leave copies of it in the embedded engine's cache, in place
of what people said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CapabilityItem:
    """A question, its answer, and what sounds like one and is wrong."""

    kind: str
    question: str
    answer: str
    distractors: tuple[str, ...]

    def __post_init__(self) -> None:
        require(bool(self.kind) and bool(self.question.strip()), "an item needs a kind and a question")
        require(
            len(self.distractors) == NUM_DISTRACTORS and len(set(self.options)) == NUM_DISTRACTORS + 1,
            f"{self.question!r} needs {NUM_DISTRACTORS} distractors, unlike its answer and each other",
        )
        require(all(option == option.strip() != "" for option in self.options), f"{self.question!r}: an option is bare")

    @property
    def options(self) -> tuple[str, ...]:
        """The answer first."""
        return (self.answer, *self.distractors)


@dataclass(frozen=True, slots=True, kw_only=True)
class CapabilityResult:
    """Which of `items` a version got right, in their order."""

    version: str
    items: tuple[CapabilityItem, ...]
    right: tuple[bool, ...]

    def __post_init__(self) -> None:
        require(len(self.items) == len(self.right) > 0, f"{len(self.items)} items came with {len(self.right)} results")

    @property
    def share(self) -> float:
        return sum(self.right) / len(self.right)

    @property
    def interval(self) -> Interval:
        """Of the share; 0.25 is what guessing gets."""
        return share_interval(sum(self.right), len(self.right))

    def by_kind(self) -> dict[str, float]:
        """The share of every kind of item."""
        kinds = defaultdict[str, list[bool]](list)
        for item, right in zip(self.items, self.right, strict=True):
            kinds[item.kind].append(right)
        return {kind: sum(found) / len(found) for kind, found in kinds.items()}

    def to_json(self) -> Json:
        return {
            "version": self.version,
            "num_items": len(self.items),
            "num_right": sum(self.right),
            "share": self.interval.to_json(),
            "by_kind": self.by_kind(),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class CapabilityChange:
    """What became of the same items from one version to another; `difference` is that of the shares."""

    difference: Interval
    lost: tuple[CapabilityItem, ...]
    won: tuple[CapabilityItem, ...]

    @property
    def is_loss(self) -> bool:
        """Whether capability fell beyond what chance explains."""
        return self.difference.high < 0

    def to_json(self) -> Json:
        return {"difference": self.difference.to_json(), "num_lost": len(self.lost), "num_won": len(self.won)}


@lru_cache(maxsize=4)
def load_items(path: Path = ITEMS_FILE) -> tuple[CapabilityItem, ...]:
    """The items of a file with one JSON object a line; ValueError says which line is wrong."""
    items: list[CapabilityItem] = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        try:
            raw = json.loads(line)
            items.append(CapabilityItem(**{**raw, "distractors": tuple(raw["distractors"])}))
        except (ValueError, TypeError, KeyError) as error:
            raise ValueError(f"{path.name}, line {number}: {error}") from error
    require(len({item.question for item in items}) == len(items), f"{path.name} asks a question twice")
    return tuple(items)


async def measure(
    engine: Engine,
    renderer: Renderer,
    version: str,
    *,
    items: Sequence[CapabilityItem] | None = None,
    on_item: Callable[[], None] = lambda: None,
) -> CapabilityResult:
    """All shipped items, or these. The version is loaded; people's requests go before these, which are short ones."""
    items = tuple(items if items is not None else load_items())
    cases = await asyncio.to_thread(lambda: [_case(renderer, item) for item in items])
    places = asyncio.Semaphore(_NUM_AT_ONCE)

    async def is_right(case: _Case) -> bool:
        async with places:
            found = await _is_right(engine, version, case)
        on_item()
        return found

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(is_right(case)) for case in cases]
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from None  # one measurement, one failure: the others were cancelled with it
    return CapabilityResult(version=version, items=items, right=tuple(task.result() for task in tasks))


def compare(before: CapabilityResult, after: CapabilityResult) -> CapabilityChange:
    """Both are of the same items."""
    require(before.items == after.items, "results are compared item by item, so both must be of the same items")
    pairs = list(zip(before.items, before.right, after.right, strict=True))
    lost = tuple(item for item, was, now in pairs if was and not now)
    won = tuple(item for item, was, now in pairs if now and not was)
    return CapabilityChange(difference=paired_share_difference(len(lost), len(won), len(pairs)), lost=lost, won=won)


_Case = tuple[list[tuple[int, ...]], int]
"""An item as ids: the same prompt before every option, the answer first; and the prompt's length."""


def _case(renderer: Renderer, item: CapabilityItem) -> _Case:
    prompt = renderer.render([Message(role="user", content=item.question)], [], {})
    options = [renderer.encode(option[0].upper() + option[1:]) for option in item.options]  # as a reply begins
    return [(*prompt, *ids) for ids in options], len(prompt)


async def _is_right(engine: Engine, version: str, case: _Case) -> bool:
    (answer, *distractors), start = case
    to_beat = await _logprob(engine, version, answer, start)
    for distractor in distractors:
        if await _logprob(engine, version, distractor, start) >= to_beat:
            return False
    return True


async def _logprob(engine: Engine, version: str, sequence: tuple[int, ...], start: int) -> float:
    request = ScoreRequest(
        request_id=f"capability-{secrets.token_hex(6)}",
        sequences=(sequence,),
        starts=(start,),
        version=version,
        cache_salt=SYSTEM_SALT,
    )
    (scored,) = await engine.score(request)
    if not math.isfinite(logprob := sum(scored.logprobs)):
        raise EngineError(f"version {version} gives log-probs that are not finite")
    return logprob
