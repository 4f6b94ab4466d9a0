"""Choose the right function and its arguments. The level is how many functions there are to choose from, less one.

The functions, what people say for them, and the values that they name are in functions.json. Those that are held out
are other functions, named with other values.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from random import Random
from string import Formatter

from openclaw_rl.envs.toolcall.families.family import Family, shipped
from openclaw_rl.envs.toolcall.tasks import CallGoal, Problem, calls_of
from openclaw_rl.envs.toolcall.tools.toolbox import OwnTool, parameters
from openclaw_rl.types import Json, Split, Tool


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """A function that people ask for. `values` are what each parameter may be, `defaults` what it is if not named."""

    split: Split
    tool: Tool
    asked: tuple[str, ...]
    values: Mapping[str, Sequence[Json]]
    defaults: Mapping[str, Json]

    def drawn(self, draw: Random, tools: tuple[OwnTool, ...]) -> Problem:
        """A question for this function among `tools`."""
        asked = draw.choice(self.asked)
        named = [name for _, name, _, _ in Formatter().parse(asked) if name]
        while True:
            arguments = {name: draw.choice(self.values[name]) for name in self.tool.parameters["properties"]}
            arguments = {name: value for name, value in arguments.items() if name in named}
            if len({str(value) for value in arguments.values()}) == len(arguments):
                break
        return Problem(
            question=asked.format(**arguments),
            goal=CallGoal(name=self.tool.name, arguments=arguments, defaults=self.defaults),
            solution=calls_of((self.tool.name, arguments)),
            tools=tools,
        )


@cache
def functions() -> tuple[Function, ...]:
    """The functions that we ship."""
    library = json.loads(shipped("families/functions.json"))
    return tuple(_function(raw, library["pools"]) for raw in library["functions"])


def _function(raw: Mapping[str, Json], pools: Mapping[str, Mapping[Split, list[str]]]) -> Function:
    declared: Mapping[str, Mapping[str, Json]] = raw["parameters"]
    schema = {
        name: {key: value for key, value in each.items() if key not in ("from", "range")}
        for name, each in declared.items()
    }
    optional = [name for name, each in declared.items() if "default" in each]
    return Function(
        split=raw["split"],
        tool=Tool(name=raw["name"], description=raw["about"], parameters=parameters(schema, optional=optional)),
        asked=tuple(raw["asked"]),
        values={name: _values(each, raw["split"], pools) for name, each in declared.items()},
        defaults={name: declared[name]["default"] for name in optional},
    )


def _values(
    declared: Mapping[str, Json], split: Split, pools: Mapping[str, Mapping[Split, list[str]]]
) -> Sequence[Json]:
    if "from" in declared:
        return pools[declared["from"]][split]
    if "range" in declared:
        low, high = declared["range"]
        return range(low, high + 1)
    return declared.get("enum") or (False, True)


def make_calls(draw: Random, split: Split, level: int) -> Iterator[Problem]:
    """A question for one of some functions; then questions for the others, one after the other."""
    offered = draw.sample([each for each in functions() if each.split == split], level + 1)
    shown = draw.sample(offered, len(offered))  # the right one may stand anywhere
    tools = tuple(OwnTool(tool=each.tool, function=lambda arguments: "Done.") for each in shown)
    first, *others = offered
    yield first.drawn(draw, tools)
    while True:
        for other in others:
            yield other.drawn(draw, tools)


CALLS = Family(
    name="calls",
    about="Choose the right function and its arguments.",
    prompt="call.txt",
    num_levels=3,
    make=make_calls,
)
