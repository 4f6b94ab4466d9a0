"""The fast way is the plain one: tree, shared teachers and fused head give its loss and each of its gradients.

The plain way shares nothing with it but the layers and the formulas of the loss: every sequence is read whole, by
torch's own attention, and every logit is made.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from openclaw_rl.model.network import Network
from openclaw_rl.train.objective.hybrid import HybridLoss
from openclaw_rl.train.objective.settings import HintSelection, LossSettings, SubsetMode
from openclaw_rl.train.passes.activations import Keep, Kept
from openclaw_rl.train.passes.reader import NetworkReader, Reader, ResponseReading
from openclaw_rl.train.passes.sequences import Sequenced, num_tokens
from openclaw_rl.train.tree.fold import Fold
from openclaw_rl.train.worker.settings import TrainSettings
from openclaw_rl.train.worker.step import PassRoom, StepOutcome, StepTaker
from openclaw_rl.train.worker.student import AdapterStudent, FullStudent
from openclaw_rl.train.worker.teacher import HintedQuestion, Teacher, ask
from openclaw_rl.types import Candidate, Sample, VersionSpan
from tests.factories import orders
from tests.factories.networks import parameters_of, random_adapter, random_network, shape

VOCAB_SIZE = 97
Family = Literal["llama", "qwen3"]
Batching = Literal["tree", "plain"]


@dataclass(frozen=True)
class Gradient:
    """What a step came to, and the gradient that it moved by."""

    outcome: StepOutcome
    tensors: list[Tensor]


class Remembering(torch.optim.SGD):
    """Moves nothing and remembers the gradient."""

    def __init__(self, parameters: Sequence[Tensor]) -> None:
        super().__init__(parameters, lr=0.0)
        self.found: list[Tensor] = []

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        self.found = [
            torch.zeros_like(one) if one.grad is None else one.grad.clone()
            for group in self.param_groups
            for one in group["params"]
        ]


def gradient(
    samples: Sequence[Sample],
    batching: Batching,
    *,
    family: Family = "llama",
    lora: bool = True,
    max_tokens: int = 10_000,
    keep: Keep = "all",
    **changes: Any,
) -> Gradient:
    network = random_network(shape(family))
    values = orders.settings(batching=batching, clip_grad_norm=1e9, use_lora=lora, **changes)
    student: AdapterStudent | FullStudent = (
        AdapterStudent(network, random_adapter(network.arch), dropout=0.0)
        if lora
        else FullStudent(network, source=Path())
    )
    reader = student.reader
    base: Reader = NetworkReader(network)
    if batching == "plain":
        reader, base = reader.plain, base.plain
    optimiser = Remembering(student.parameters)
    taker = StepTaker(
        reader,
        student.parameters,
        optimiser,
        HybridLoss(LossSettings.from_training(values)),
        Teacher(base, temperature=1.1),
        Teacher(base),
        TrainSettings.from_training(values),
        room_for=lambda _: PassRoom(max_tokens=max_tokens, kept=Kept(keep=keep)),
    )
    outcome = taker.take(samples, number=1, seed=1)
    assert not outcome.reason
    return Gradient(outcome, optimiser.found)


def same(samples: Sequence[Sample], **options: Any) -> Gradient:
    """The gradient of the tree, which is that of the plain way."""
    plain = gradient(samples, "plain", **{name: value for name, value in options.items() if name != "max_tokens"})
    tree = gradient(samples, "tree", **options)
    assert tree.outcome.metrics["loss/total"] == pytest.approx(plain.outcome.metrics["loss/total"], abs=2e-6)
    scale = max(float(one.abs().max()) for one in plain.tensors)
    assert scale > 1e-4, "there is something to compare"
    for mine, theirs in zip(tree.tensors, plain.tensors, strict=True):
        torch.testing.assert_close(mine, theirs, atol=3e-6 * max(scale, 1.0), rtol=2e-4)
    for name in ("loss/opd", "sample/teacher_gap", "sample/overlap", "sample/kl"):
        if name in plain.outcome.metrics:
            assert tree.outcome.metrics[name] == pytest.approx(plain.outcome.metrics[name], abs=1e-5), name
    return tree


def sample(
    index: int,
    prompt_ids: Sequence[int],
    response_ids: Sequence[int],
    *,
    hints: Sequence[Sequence[int]] = (),
    session: str = "s",
    **changes: Any,
) -> Sample:
    size = len(response_ids)
    drawn = random.Random(f"{session} {index}")
    values: dict[str, Any] = {
        "id": f"{session}.{index}",
        "line": "local",
        "kind": "turn",
        "session": session,
        "index": index,
        "prompt_index": index,
        "created_at": 0.0,
        "prompt_ids": tuple(prompt_ids),
        "response_ids": tuple(response_ids),
        "loss_mask": (*(drawn.random() < 0.8 for _ in range(size - 1)), True),
        "advantages": (drawn.uniform(-1.5, 1.5),) * size,
        "logprobs": tuple(-4.5 + drawn.random() for _ in range(size)),
        "temperature": drawn.choice((0.7, 1.0)),
        "on_policy": True,
        "reward": 1.0,
        "w_rl": 1.0,
        "w_opd": 1.0 if hints else 0.0,
        "candidates": tuple(Candidate(hint="h", num_shared=len(prompt_ids), suffix_ids=tuple(hint)) for hint in hints),
        "version_spans": (VersionSpan("v0", 0, size),),
    }
    return Sample(**{**values, **changes})


def ids(drawn: random.Random, size: int) -> list[int]:
    return [drawn.randrange(3, VOCAB_SIZE) for _ in range(size)]


def conversation(
    num_turns: int, *, seed: int = 0, head: Sequence[int] | None = None, thinking: int = 0, session: str = "s"
) -> Iterator[Sample]:
    """Turns of one session, three hints each. What is thought is learned and then stripped from the history."""
    drawn = random.Random(seed)
    visible = list(head if head is not None else ids(drawn, 12))
    for turn in range(num_turns):
        visible += ids(drawn, 4)
        thought, answer = ids(drawn, thinking), ids(drawn, 5)
        hints = [ids(drawn, 2 + hint) for hint in range(3)]
        yield sample(turn, visible, [*thought, *answer], hints=hints, session=session)
        visible += answer


FAMILIES = pytest.mark.parametrize("family", get_args(Family))


@FAMILIES
@pytest.mark.parametrize("lora", [True, False], ids=["adapter", "full"])
@pytest.mark.parametrize("thinking", [0, 3], ids=["chain", "stripped"])
def test_a_conversation(family: Family, lora: bool, thinking: int) -> None:
    turns = list(conversation(4, thinking=thinking))
    found = same(turns, family=family, lora=lora)
    assert found.outcome.metrics["step/tokens_computed"] < 0.4 * found.outcome.metrics["step/tokens"]


@pytest.mark.parametrize("subset_mode", get_args(SubsetMode))
@pytest.mark.parametrize("hint_selection", get_args(HintSelection))
def test_every_subset_and_selection(subset_mode: SubsetMode, hint_selection: HintSelection) -> None:
    same(list(conversation(3)), subset_mode=subset_mode, hint_selection=hint_selection)


@pytest.mark.parametrize(
    "changes",
    [
        {"distillation": "token"},
        {"distillation": "reverse_kl"},
        {"distillation": "forward_kl"},
        {"kl_coef": 0.3},
        {"entropy_coef": 0.2},
        {"loss_per_token": True},
        {"num_epochs": 2},
        {"top_k": 9},
        {"sequence_ratio": True},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_every_term(changes: dict[str, Any]) -> None:
    same(list(conversation(3)), **changes)


@pytest.mark.parametrize("keep", get_args(Keep))
@pytest.mark.parametrize("max_tokens", [70, 10_000], ids=["parts", "whole"])
def test_splits_and_recomputing(keep: Keep, max_tokens: int) -> None:
    same(list(conversation(4, thinking=2)), keep=keep, max_tokens=max_tokens, family="qwen3")


def test_several_sessions_with_a_common_head() -> None:
    head = ids(random.Random(5), 20)
    turns = [
        turn for seed in (1, 2, 3) for turn in conversation(2, seed=seed, head=head, session=f"s{seed}", thinking=2)
    ]
    turns.append(sample(0, ids(random.Random(9), 7), ids(random.Random(8), 4), session="alone"))
    random.Random(0).shuffle(turns)
    same(turns)
    same(turns, max_tokens=90)


def test_regenerated_answers_and_a_hint_within_the_history() -> None:
    """Siblings behind one prompt; and a hint that is placed before the last words of the prompt."""
    prompt = ids(random.Random(1), 15)
    within = Candidate(hint="h", num_shared=6, suffix_ids=(*ids(random.Random(2), 3), *prompt[6:]))
    turns = [sample(at, prompt, ids(random.Random(at), 5), hints=[ids(random.Random(40 + at), 2)]) for at in range(3)]
    turns.append(sample(7, prompt, ids(random.Random(7), 6), w_opd=1.0, candidates=(within,)))
    same(turns)


FEW = st.integers(3, 5)


@settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(
        st.tuples(
            st.lists(FEW, min_size=1, max_size=9),
            st.lists(FEW, min_size=1, max_size=5),
            st.lists(st.lists(FEW, min_size=1, max_size=3), max_size=2),
        ),
        min_size=1,
        max_size=5,
    ),
    st.sampled_from([20, 10_000]),
)
def test_any_tree(turns: list[tuple[list[int], list[int], list[list[int]]]], max_tokens: int) -> None:
    """Three tokens only, so that beginnings are often the same."""
    samples = [
        sample(at, prompt, response, hints=hints, advantages=(1.0,) * len(response))
        for at, (prompt, response, hints) in enumerate(turns)
    ]
    same(samples, max_tokens=max_tokens)


class Parts(NetworkReader):
    """Remembers which sequences it was given together."""

    def __init__(self, network: Network) -> None:
        super().__init__(network)
        self.parts: list[list[Sequenced]] = []

    def read(self, sequences: Sequence[Sequenced], **options: Any) -> list[ResponseReading]:
        self.parts.append(list(sequences))
        return super().read(sequences, **options)


def parts_of(
    samples: Sequence[Sample], room: PassRoom, **changes: Any
) -> tuple[list[list[Sequenced]], Parts, StepOutcome]:
    """What the student, and what the teacher, read together."""
    network = random_network(shape("llama"), learns=True)
    student, teacher = Parts(network), Parts(random_network(shape("llama")))
    values = orders.settings(use_lora=False, **changes)
    taker = StepTaker(
        student,
        list(parameters_of(network).values()),
        torch.optim.SGD(parameters_of(network).values(), lr=0.0),
        HybridLoss(LossSettings.from_training(values)),
        Teacher(teacher),
        Teacher(teacher),
        TrainSettings.from_training(values),
        room_for=lambda _: room,
    )
    return student.parts, teacher, taker.take(samples, number=1, seed=1)


def test_a_conversation_is_computed_together_however_it_came() -> None:
    turns = [turn for name in ("a", "b") for turn in conversation(2, seed=ord(name), session=name)]
    mixed = [turns[at] for at in (0, 2, 1, 3)]
    read, _, _ = parts_of(mixed, PassRoom(max_tokens=40))
    assert [[one.prompt_ids for one in part] for part in read] == [
        [turn.prompt_ids for turn in turns[:2]],
        [turn.prompt_ids for turn in turns[2:]],
    ]


def test_a_batch_is_computed_in_as_many_parts_as_asked_for() -> None:
    read, _, _ = parts_of(list(conversation(4)), PassRoom(max_tokens=10_000), gradient_accumulation_steps=2)
    assert [len(part) for part in read] == [2, 2]


def test_a_teacher_reads_no_more_at_once_than_there_is_room_for() -> None:
    turns = list(conversation(3))
    _, whole, _ = parts_of(turns, PassRoom(max_tokens=10_000))
    assert [len(part) for part in whole.parts] == [9]
    _, split, _ = parts_of(turns, PassRoom(max_tokens=10_000, max_read_tokens=30))
    assert len(split.parts) > 3
    assert all(len(part) == 1 or num_tokens(Fold(), part) <= 30 for part in split.parts)


@pytest.mark.parametrize("changes", [{}, {"num_epochs": 2}, {"kl_coef": 0.1}], ids=str)
def test_tokens_are_counted_where_they_are_computed(changes: dict[str, Any]) -> None:
    turns = [*conversation(3), sample(9, (5, 6), (7, 8), session="still", w_rl=0.0)]
    read, teacher, outcome = parts_of(turns, PassRoom(max_tokens=50, max_read_tokens=60), **changes)
    expected = sum(num_tokens(Fold(), part) for part in (*read, *teacher.parts))
    assert outcome.metrics["step/tokens_computed"] == expected


def test_a_teachers_temperature_and_the_samples_divide_together() -> None:
    network = random_network(shape("llama"))
    asked = Sequenced((5, 6, 7), (8, 9))
    ids = torch.tensor([[1, 50], [2, 60]])
    reader = NetworkReader(network)
    (rows,) = ask([HintedQuestion(Teacher(reader, temperature=1.5), asked, 0.8)], [reader], max_tokens=10)
    with torch.no_grad():
        (reading,) = NetworkReader(network).plain.read([asked])
        expected = network.logits(reading.hidden).div(1.2).log_softmax(-1).gather(1, ids)
    torch.testing.assert_close(rows.logprob(ids), expected)
