"""Sums and products with a calculator: the level is how much there is to calculate."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from random import Random

from openclaw_rl.envs.toolcall.answers import Check
from openclaw_rl.envs.toolcall.families.family import Family
from openclaw_rl.envs.toolcall.tasks import SUBMIT, AnswerGoal, Problem, calls_of
from openclaw_rl.envs.toolcall.tools.calculator import CALCULATOR, calculate
from openclaw_rl.types import Split

_ASKED: Mapping[Split, tuple[str, ...]] = {
    "train": (
        "What is {}?",
        "Calculate {}.",
        "What do you get for {}?",
        "Please work out {}.",
        "I need the value of {}.",
        "{} = ?",
    ),
    "held_out": (
        "Tell me how much {} is.",
        "Could you compute {} for me?",
        "My homework says: {}. What is the result?",
        "Evaluate {} and give me the number.",
    ),
}
_LARGEST = {1: 100, 2: 1000, 3: 100}


def make_sums(draw: Random, split: Split, level: int) -> Iterator[Problem]:
    """Chains of sums; at level 3 products and parentheses."""
    while True:
        yield _sum(draw, split, level)


def _sum(draw: Random, split: Split, level: int) -> Problem:
    expression = _chain(draw, level) if level < 3 else _nested(draw)
    result = calculate(expression)
    return Problem(
        question=draw.choice(_ASKED[split]).format(expression),
        goal=AnswerGoal(reference=result, check=Check(name="number")),
        solution=calls_of((CALCULATOR.tool.name, {"expression": expression}), (SUBMIT.name, {"answer": result})),
        tools=(CALCULATOR,),
    )


def _chain(draw: Random, level: int) -> str:
    terms = [str(draw.randrange(_LARGEST[level] // 10, _LARGEST[level])) for _ in range(draw.randint(1, 3) + level)]
    return "".join(f" {draw.choice('+-')} {term}" if number else term for number, term in enumerate(terms))


def _nested(draw: Random) -> str:
    low, high, factor, last = (draw.randrange(2, _LARGEST[3]) for _ in range(4))
    return draw.choice(
        (
            f"({low} + {high}) * {factor} - {last}",
            f"{low} * {high} + {factor} * {last}",
            f"{low} * ({high} - {factor}) + {last}",
            f"({low} - {high}) * ({factor} + {last})",
        )
    )


SUMS = Family(
    name="sums",
    about="Sums and products with a calculator.",
    prompt="answer.txt",
    num_levels=3,
    make=make_sums,
)
