"""The shipped items are sound in form, a model that knows is told from one that guesses, and changes are paired."""

from __future__ import annotations

import asyncio
import json
import math
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Collection
from dataclasses import replace
from pathlib import Path

import pytest

from openclaw_rl.errors import EngineError, EngineLost
from openclaw_rl.evaluation.capability import CapabilityItem, CapabilityResult, compare, load_items, measure
from openclaw_rl.protocols import Renderer
from openclaw_rl.release.gate.probes import PROBES
from openclaw_rl.render.loading import load_renderer
from openclaw_rl.train.anchor_prompts import ANCHORS
from openclaw_rl.types import BACKGROUND, Delta, EngineState, GenerateRequest, Publication, Scored, ScoreRequest
from tests.tiny import build_tiny_tokenizer

ITEMS = (
    CapabilityItem(kind="fact", question="What do hens lay?", answer="eggs", distractors=("seeds", "milk", "honey")),
    CapabilityItem(
        kind="fact", question="What is a baby cow called?", answer="a calf", distractors=("a foal", "a kid", "an ox")
    ),
    CapabilityItem(kind="sum", question="What is 2 + 2?", answer="4", distractors=("3", "5", "14")),
)


class Scorer:
    """An engine that reads text: `likes(question, reply)` is the log-prob of each token of the reply."""

    def __init__(self, renderer: Renderer, likes: Callable[[str, str], float]) -> None:
        self._renderer, self._likes = renderer, likes
        self.requests: list[ScoreRequest] = []
        self.num_running = self.most_running = 0

    async def score(self, request: ScoreRequest) -> tuple[Scored, ...]:
        self.requests.append(request)
        self.num_running += 1
        self.most_running = max(self.most_running, self.num_running)
        await asyncio.sleep(0)
        self.num_running -= 1
        return tuple(self._scored(ids, start) for ids, start in zip(request.sequences, request.starts, strict=True))

    def _scored(self, ids: tuple[int, ...], start: int) -> Scored:
        asked, reply = (self._renderer.decode(part) for part in (ids[:start], ids[start:]))
        return Scored(logprobs=(self._likes(asked, reply),) * (len(ids) - start))

    def generate(self, request: GenerateRequest) -> AsyncGenerator[Delta, None]:
        raise NotImplementedError

    async def publish(self, publication: Publication) -> None:
        raise NotImplementedError

    async def retire(self, version: str) -> None:
        raise NotImplementedError

    async def forget_cache(self, salts: Collection[str]) -> None:
        raise NotImplementedError

    async def state(self) -> EngineState:
        raise NotImplementedError

    async def close(self) -> None: ...


@pytest.fixture(scope="module")
def renderer(tmp_path_factory: pytest.TempPathFactory) -> Renderer:
    folder = build_tiny_tokenizer(tmp_path_factory.mktemp("tiny"))
    (folder / "config.json").write_text('{"model_type": "llama", "eos_token_id": 2}')
    return load_renderer(folder, "tiny")


def knows(*answers: str) -> Callable[[str, str], float]:
    return lambda asked, reply: -0.01 if reply in answers else -9.0


async def test_an_item_is_right_where_its_answer_is_the_likeliest_reply(renderer: Renderer) -> None:
    engine = Scorer(renderer, knows("Eggs", "4", "An ox"))
    result = await measure(engine, renderer, "v7", items=ITEMS)
    assert result.right == (True, False, True)
    assert result.share == pytest.approx(2 / 3)
    assert result.interval.low < 2 / 3 < result.interval.high
    assert result.by_kind() == {"fact": 0.5, "sum": 1.0}
    assert result.version == "v7"


async def test_a_tie_is_not_knowing(renderer: Renderer) -> None:
    items = [replace(ITEMS[2], distractors=("3", "5", "6"))]  # all are of one token
    assert (await measure(Scorer(renderer, lambda asked, reply: -1.0), renderer, "v0", items=items)).right == (False,)


async def test_the_whole_reply_counts_not_its_mean(renderer: Renderer) -> None:
    item = replace(ITEMS[2], answer="4", distractors=("3" * 9, "5" * 9, "6" * 9))
    likes: Callable[[str, str], float] = lambda asked, reply: -2.0 if reply == "4" else -1.0  # noqa: E731
    assert (await measure(Scorer(renderer, likes), renderer, "v0", items=[item])).right == (True,)


async def test_the_question_is_asked_as_in_a_chat(renderer: Renderer) -> None:
    engine = Scorer(renderer, knows("Eggs"))
    await measure(engine, renderer, "v3", items=ITEMS[:1])
    assert {(r.version, r.priority, r.temperature) for r in engine.requests} == {("v3", BACKGROUND, 1.0)}
    (start,) = {start for request in engine.requests for start in request.starts}
    sequences = [ids for request in engine.requests for ids in request.sequences]
    texts = [(renderer.decode(ids[:start]), renderer.decode(ids[start:])) for ids in sequences]
    assert [reply for _, reply in texts] == ["Eggs", "Seeds", "Milk", "Honey"]
    (asked,) = {asked for asked, _ in texts}
    assert "user\nWhat do hens lay?" in asked
    assert asked.endswith("assistant\n")


async def test_only_a_few_are_under_way_at_a_time(renderer: Renderer) -> None:
    engine = Scorer(renderer, knows("Seeds"))
    items = [replace(ITEMS[0], question=f"What do {number} hens lay?") for number in range(50)]
    result = await measure(engine, renderer, "v0", items=items)
    assert len(engine.requests) == 100, "what the first distractor decides is not asked further"
    assert 2 <= engine.most_running <= 32
    assert result.share == 0.0


async def test_a_model_that_gives_no_numbers_has_no_capability_to_speak_of(renderer: Renderer) -> None:
    with pytest.raises(EngineError, match="not finite"):
        await measure(Scorer(renderer, lambda asked, reply: math.nan), renderer, "v0", items=ITEMS)


async def test_an_engine_that_dies_ends_the_measurement_with_its_own_error(renderer: Renderer) -> None:
    def dies(asked: str, reply: str) -> float:
        raise EngineLost("gone")

    with pytest.raises(EngineLost):
        await measure(Scorer(renderer, dies), renderer, "v0", items=ITEMS)


def _result(*right: bool, items: tuple[CapabilityItem, ...] = ITEMS) -> CapabilityResult:
    return CapabilityResult(version="v", items=items, right=right)


def test_two_versions_are_compared_item_by_item() -> None:
    change = compare(_result(True, False, True), _result(True, True, False))
    assert ([i.answer for i in change.lost], [i.answer for i in change.won]) == (["4"], ["a calf"])
    assert change.difference.value == 0.0
    assert not change.is_loss
    assert compare(_result(False, False, True), _result(True, True, True)).difference.value == pytest.approx(2 / 3)
    with pytest.raises(ValueError, match="same items"):
        compare(_result(True, True, True), _result(True, items=ITEMS[:1]))


def test_a_loss_is_what_chance_does_not_explain() -> None:
    items = tuple(replace(ITEMS[0], question=f"What do {number} hens lay?") for number in range(500))
    before = _result(*[number < 300 for number in range(500)], items=items)

    def after(num_lost: int, num_won: int) -> CapabilityResult:
        return _result(*[num_lost <= number < 300 + num_won for number in range(500)], items=items)

    assert not compare(before, after(6, 3)).is_loss
    assert compare(before, after(25, 3)).is_loss
    assert not compare(before, after(3, 25)).is_loss


def test_results_need_one_answer_an_item() -> None:
    with pytest.raises(ValueError, match="3 items came with 2 results"):
        _result(True, False)


def test_the_shipped_items_are_many_and_varied() -> None:
    items = load_items()
    assert len(items) >= 480
    kinds = Counter(item.kind for item in items)
    assert len(kinds) >= 9
    assert max(kinds.values()) <= len(items) // 5
    assert len({item.question.casefold() for item in items}) == len(items)


def test_the_right_answer_cannot_be_told_by_its_length() -> None:
    items = load_items()
    assert all(1 <= len(option.split()) <= 6 for item in items for option in item.options)
    longest = sum(len(item.answer) > max(map(len, item.distractors)) for item in items) / len(items)
    shortest = sum(len(item.answer) < min(map(len, item.distractors)) for item in items) / len(items)
    assert 0.10 <= longest <= 0.25
    assert 0.10 <= shortest <= 0.25


def test_sums_come_to_their_answers() -> None:
    plain = [item for item in load_items() if item.question.startswith("What is ") and item.kind == "arithmetic"]
    signs = {"times": "*", "divided by": "/"}
    checked = 0
    for item in plain:
        term = item.question.removeprefix("What is ").removesuffix("?")
        for word, sign in signs.items():
            term = term.replace(word, sign)
        if set(term) <= set("0123456789 +-*/"):
            assert eval(term) == int(item.answer), item.question
            checked += 1
    assert checked >= 40


def test_no_item_is_trained_on() -> None:
    asked = {item.question.casefold() for item in load_items()}
    assert asked.isdisjoint(text.casefold() for text in (*ANCHORS, *PROBES))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ({"answer": "a", "distractors": ["b", "c"]}, "needs 3 distractors"),
        ({"answer": "a", "distractors": ["b", "c", "a"]}, "unlike its answer"),
        ({"answer": "a", "distractors": ["b", "c", " d"]}, "an option is bare"),
        ({"answer": "a"}, "distractors"),
        ({"answer": "a", "distractors": ["b", "c", "d"], "hint": "e"}, "hint"),
    ],
)
def test_a_line_that_is_no_item_is_named(tmp_path: Path, line: dict[str, object], message: str) -> None:
    good = {"kind": "k", "question": "p?", "answer": "x", "distractors": ["y", "z", "w"]}
    path = tmp_path / "items.jsonl"
    path.write_text("\n".join(json.dumps(entry) for entry in (good, {"kind": "k", "question": "q?", **line})))
    with pytest.raises(ValueError, match=f"line 2: .*{message}"):
        load_items(path)


def test_a_question_stands_once(tmp_path: Path) -> None:
    path = tmp_path / "items.jsonl"
    path.write_text((json.dumps({"kind": "k", "question": "p?", "answer": "x", "distractors": list("yzw")}) + "\n") * 2)
    with pytest.raises(ValueError, match="twice"):
        load_items(path)
