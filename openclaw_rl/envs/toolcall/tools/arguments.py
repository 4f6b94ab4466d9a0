"""The JSON text of a call's arguments -> the arguments, or a sentence that says what is wrong with them.

    {"city": 7}  ->  get_weather: `city` must be a string, not 7. It takes city (string), days (integer, optional).

Knows the keywords of JSON schema that tools use. Others are left to whoever answers the call.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from itertools import islice

from openclaw_rl.envs.toolcall.tools.toolbox import CallFault
from openclaw_rl.types import Json, Tool

_MOST_TOLD = 3
_LONGEST_SHOWN = 60
_TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "boolean": (bool,),
    "object": (dict,),
    "array": (list,),
    "null": (type(None),),
    "number": (int, float),
    "integer": (int, float),
}


def read_arguments(tool: Tool, written: str) -> dict[str, Json]:
    """`CallFault` where they are no arguments of this tool."""
    try:
        found = json.loads(written.strip() or "{}", parse_constant=_finite, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        raise CallFault(f"{tool.name}: the arguments are not valid JSON ({error}). {usage(tool)}") from None
    if not isinstance(found, dict):
        raise CallFault(f"{tool.name}: the arguments must be a JSON object, not {_shown(found)}. {usage(tool)}")
    if wrong := list(islice(_faults(found, tool.parameters, ""), _MOST_TOLD)):
        raise CallFault(f"{tool.name}: {'; '.join(wrong)}. {usage(tool)}")
    return found


def usage(tool: Tool) -> str:
    """What a tool takes, in a sentence."""
    properties = _properties(tool.parameters)
    required = tool.parameters.get("required") or ()
    taken = [
        f"{name} ({_expected(schema)}{'' if name in required else ', optional'})" for name, schema in properties.items()
    ]
    return f"It takes {', '.join(taken)}." if taken else "It takes no arguments."


def _finite(number: str) -> float:
    value = float(number)
    if not math.isfinite(value):
        raise ValueError(f"{number} is not a number that can be counted with")
    return value


def _properties(schema: Mapping[str, Json]) -> Mapping[str, Json]:
    properties = schema.get("properties")
    return properties if isinstance(properties, Mapping) else {}


def _faults(value: Json, schema: Json, where: str) -> Iterator[str]:
    """What is wrong with a value; `where` is its path, empty for the arguments as a whole."""
    if not isinstance(schema, Mapping):
        return
    branches = schema.get("anyOf") or schema.get("oneOf")
    if isinstance(branches, list) and all(any(_faults(value, branch, where)) for branch in branches):
        yield f"`{where}` must be {_expected(schema)}, not {_shown(value)}"
        return
    if not _has_type(value, schema):
        yield f"`{where}` must be {_article(_expected(schema))}, not {_shown(value)}"
        return
    allowed = schema.get("enum")
    if isinstance(allowed, list) and value not in allowed:
        yield f"`{where}` must be one of {', '.join(map(_shown, allowed))}, not {_shown(value)}"
    if isinstance(value, dict):
        yield from _object_faults(value, schema, where)
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from _faults(item, schema.get("items"), f"{where}[{number}]")
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield from _range_faults(value, schema, where)


def _object_faults(value: Mapping[str, Json], schema: Mapping[str, Json], where: str) -> Iterator[str]:
    prefix = f"{where}." if where else ""
    properties = _properties(schema)
    for name in schema.get("required") or ():
        if name not in value:
            yield f"`{prefix}{name}` is missing"
    for name, item in value.items():
        if name in properties:
            yield from _faults(item, properties[name], f"{prefix}{name}")
        elif schema.get("additionalProperties") is False:
            near = get_close_matches(name, properties, n=1)
            yield f"there is no argument `{prefix}{name}`" + (f", perhaps `{prefix}{near[0]}`" if near else "")


def _range_faults(value: float, schema: Mapping[str, Json], where: str) -> Iterator[str]:
    low, high = schema.get("minimum"), schema.get("maximum")
    if isinstance(low, (int, float)) and value < low:
        yield f"`{where}` must be at least {low}, not {_shown(value)}"
    if isinstance(high, (int, float)) and value > high:
        yield f"`{where}` must be at most {high}, not {_shown(value)}"


def _types(schema: Mapping[str, Json]) -> list[str]:
    declared = schema.get("type")
    return [str(name) for name in (declared if isinstance(declared, list) else [declared]) if name in _TYPES]


def _has_type(value: Json, schema: Mapping[str, Json]) -> bool:
    types = _types(schema)
    return not types or any(_is(value, name) for name in types)


def _is(value: Json, name: str) -> bool:
    if isinstance(value, bool) and name != "boolean":  # to Python, true is the integer 1
        return False
    return isinstance(value, _TYPES[name]) and not (
        name == "integer" and isinstance(value, float) and not value.is_integer()
    )


def _expected(schema: Json) -> str:
    if not isinstance(schema, Mapping):
        return "anything"
    branches = schema.get("anyOf") or schema.get("oneOf")
    if isinstance(branches, list):
        return " or ".join(_expected(branch) for branch in branches)
    return " or ".join(_types(schema)) or "anything"


def _article(noun: str) -> str:
    return f"an {noun}" if noun[0] in "aeiou" else f"a {noun}"


def _shown(value: Json) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…"
