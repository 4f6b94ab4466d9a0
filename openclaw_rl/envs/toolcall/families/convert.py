"""Measures in other units. Level 1: whole values; 2: values with decimals; 3: two measures, then their sum."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache
from random import Random

from openclaw_rl.envs.toolcall.answers import Check
from openclaw_rl.envs.toolcall.families.family import Family, shipped
from openclaw_rl.envs.toolcall.tasks import SUBMIT, AnswerGoal, Problem, calls_of
from openclaw_rl.envs.toolcall.tools.calculator import CALCULATOR, calculate
from openclaw_rl.envs.toolcall.tools.toolbox import Arguments, CallFault, OwnTool, parameters
from openclaw_rl.types import Split, Tool

Units = Mapping[str, float]
"""What one of each unit is, in a unit that all have in common."""

_ASKED: Mapping[Split, tuple[str, ...]] = {
    "train": (
        "How many {to} are {value} {unit}?",
        "Convert {value} {unit} to {to}.",
        "What are {value} {unit} in {to}?",
        "Please give me {value} {unit} in {to}.",
    ),
    "held_out": (
        "I have {value} {unit}. What is that in {to}?",
        "Express {value} {unit} as {to}.",
        "{value} {unit} make how many {to}?",
    ),
}
_ASKED_OF_TWO: Mapping[Split, tuple[str, ...]] = {
    "train": (
        "How many {to} are {value} {unit} and {value2} {unit2} together?",
        "Add {value} {unit} and {value2} {unit2}. What is it in {to}?",
    ),
    "held_out": (
        "I have {value} {unit} and another {value2} {unit2}. What is that in {to} in all?",
        "Sum up {value} {unit} and {value2} {unit2} as {to}.",
    ),
}
_LARGEST_RATIO = 5000


@cache
def quantities() -> Mapping[Split, Mapping[str, Units]]:
    """The units that we know, by quantity."""
    found: Mapping[Split, Mapping[str, Units]] = json.loads(shipped("families/units.json"))
    return found


def make_conversions(draw: Random, split: Split, level: int) -> Iterator[Problem]:
    """Conversions within one quantity."""
    units = draw.choice(list(quantities()[split].values()))
    tools = (_converter(units), *([CALCULATOR] if level == 3 else []))
    while True:
        unit, unit2, to = draw.sample(list(units), 3)
        if all(_is_readable(units[each] / units[to]) for each in (unit, unit2)):
            yield _conversion(draw, split, level, units, (unit, unit2, to), tools)


def _is_readable(ratio: float) -> bool:
    return 1 / 10 <= ratio <= _LARGEST_RATIO


def _conversion(
    draw: Random, split: Split, level: int, units: Units, named: tuple[str, str, str], tools: tuple[OwnTool, ...]
) -> Problem:
    unit, unit2, to = named
    value, value2 = (draw.randrange(20, 1000) / 10 if level == 2 else draw.randrange(10, 100) for _ in range(2))
    parts = [(value, unit), (value2, unit2)] if level == 3 else [(value, unit)]
    results = [_converted(units, each, of, to) for each, of in parts]
    expression = " + ".join(results)
    answer = calculate(expression) if level == 3 else results[0]
    asked = draw.choice((_ASKED_OF_TWO if level == 3 else _ASKED)[split])
    return Problem(
        question=asked.format(value=value, unit=unit, value2=value2, unit2=unit2, to=to),
        goal=AnswerGoal(reference=answer, check=Check(name="number")),
        solution=calls_of(
            *(("convert", {"value": each, "from_unit": of, "to_unit": to}) for each, of in parts),
            *([(CALCULATOR.tool.name, {"expression": expression})] if level == 3 else []),
            (SUBMIT.name, {"answer": answer}),
        ),
        tools=tools,
    )


def _converted(units: Units, value: float, unit: str, to: str) -> str:
    return f"{value * units[unit] / units[to]:.2f}".rstrip("0").rstrip(".")


def _converter(units: Units) -> OwnTool:
    def convert(arguments: Arguments) -> str:
        unit, to = (str(arguments[name]).strip().casefold() for name in ("from_unit", "to_unit"))
        for name in (unit, to):
            if name not in units:
                raise CallFault(f"There is no unit {name!r} here. There are: {', '.join(units)}.")
        return _converted(units, arguments["value"], unit, to)

    schema = parameters(
        {
            "value": {"type": "number", "description": "How many"},
            "from_unit": {"type": "string", "description": f"One of {', '.join(units)}"},
            "to_unit": {"type": "string", "description": "The unit that is asked for"},
        }
    )
    about = "Convert a value from one unit to another, rounded to two decimals."
    return OwnTool(tool=Tool(name="convert", description=about, parameters=schema), function=convert)


CONVERT = Family(
    name="convert",
    about="Convert measures between units.",
    prompt="answer.txt",
    num_levels=3,
    make=make_conversions,
)
