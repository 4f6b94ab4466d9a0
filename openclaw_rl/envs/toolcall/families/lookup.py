"""Questions about a table that only a tool can read. Level 1: one look; 2: one look, then a product; 3: two looks, then
a sum."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from random import Random

from openclaw_rl.envs.toolcall.answers import Check
from openclaw_rl.envs.toolcall.families.family import Family, shipped
from openclaw_rl.envs.toolcall.tasks import SUBMIT, AnswerGoal, Problem, calls_of
from openclaw_rl.envs.toolcall.tools.calculator import CALCULATOR, calculate
from openclaw_rl.envs.toolcall.tools.toolbox import Arguments, CallFault, OwnTool, parameters
from openclaw_rl.types import Split, Tool

_ROWS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """What a table is about: the tool that reads it, its keys, the range of its values, and questions by level."""

    split: Split
    tool: str
    about: str
    key: str
    keys: tuple[str, ...]
    low: int
    high: int
    asked: Mapping[str, tuple[str, ...]]


@cache
def tables() -> tuple[Table, ...]:
    """The tables that we ship."""
    return tuple(
        Table(**{**each, "keys": tuple(each["keys"]), "asked": {k: tuple(v) for k, v in each["asked"].items()}})
        for each in json.loads(shipped("families/tables.json"))
    )


def make_lookups(draw: Random, split: Split, level: int) -> Iterator[Problem]:
    """Questions about one table."""
    table = draw.choice([each for each in tables() if each.split == split])
    rows = {key: draw.randint(table.low, table.high) for key in draw.sample(table.keys, _ROWS)}
    tools = (_reader(table, rows), *([CALCULATOR] if level > 1 else []))
    while True:
        yield _lookup(draw, table, rows, tools, level)


def _lookup(draw: Random, table: Table, rows: Mapping[str, int], tools: tuple[OwnTool, ...], level: int) -> Problem:
    first, second = draw.sample(list(rows), 2)
    count = draw.randint(2, 12)
    expression = {1: "", 2: f"{count} * {rows[first]}", 3: f"{rows[first]} + {rows[second]}"}[level]
    result = calculate(expression) if expression else str(rows[first])
    return Problem(
        question=draw.choice(table.asked[str(level)]).format(first=first, second=second, count=count),
        goal=AnswerGoal(reference=result, check=Check(name="number")),
        solution=calls_of(
            *((table.tool, {table.key: key}) for key in ([first, second] if level == 3 else [first])),
            *([(CALCULATOR.tool.name, {"expression": expression})] if expression else []),
            (SUBMIT.name, {"answer": result}),
        ),
        tools=tools,
    )


def _reader(table: Table, rows: Mapping[str, int]) -> OwnTool:
    by_key = {key.casefold(): value for key, value in rows.items()}

    def look(arguments: Arguments) -> str:
        key = str(arguments[table.key]).strip().casefold()
        if key not in by_key:
            raise CallFault(f"There is no {table.key} {arguments[table.key]!r}. There are: {', '.join(rows)}.")
        return str(by_key[key])

    schema = parameters({table.key: {"type": "string", "description": f"The {table.key}"}})
    return OwnTool(tool=Tool(name=table.tool, description=table.about, parameters=schema), function=look)


LOOKUP = Family(
    name="lookup",
    about="Look values up with a tool, then calculate with them.",
    prompt="answer.txt",
    num_levels=3,
    make=make_lookups,
)
