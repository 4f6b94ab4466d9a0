"""Arguments of calls: those of the tool are read, and what is wrong is said in a sentence that helps."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openclaw_rl.envs.toolcall.tools.arguments import read_arguments, usage
from openclaw_rl.envs.toolcall.tools.toolbox import CallFault
from openclaw_rl.types import Tool

WEATHER = Tool(
    name="weather",
    parameters={
        "type": "object",
        "properties": {
            "city": {"type": "string"},
            "days": {"type": "integer", "minimum": 1, "maximum": 10},
            "unit": {"type": "string", "enum": ["C", "F"]},
            "at": {"anyOf": [{"type": "null"}, {"type": "array", "items": {"type": "number"}}]},
            "where": {"type": "object", "properties": {"x": {"type": "boolean"}}, "required": ["x"]},
            "free": {},
        },
        "required": ["city", "days"],
        "additionalProperties": False,
    },
)
MINIMAL = {"city": "Oslo", "days": 3}


@pytest.mark.parametrize(
    "extra",
    [{}, {"unit": "C"}, {"at": None}, {"at": [1, 2.5]}, {"where": {"x": True, "y": 1}}, {"free": {"any": [1]}}],
)
def test_arguments_that_fit_are_read(extra: dict[str, object]) -> None:
    assert read_arguments(WEATHER, json.dumps({**MINIMAL, **extra})) == {**MINIMAL, **extra}


def test_a_whole_number_may_be_written_with_a_point() -> None:
    assert read_arguments(WEATHER, '{"city": "Oslo", "days": 3.0}')["days"] == 3


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"days": 3}, "`city` is missing"),
        ({"city": 7, "days": 3}, "`city` must be a string, not 7"),
        ({"city": "Oslo", "days": "three"}, '`days` must be an integer, not "three"'),
        ({"city": "Oslo", "days": 2.5}, "`days` must be an integer, not 2.5"),
        ({"city": "Oslo", "days": True}, "`days` must be an integer, not true"),
        ({"city": "Oslo", "days": 0}, "`days` must be at least 1, not 0"),
        ({"city": "Oslo", "days": 11}, "`days` must be at most 10, not 11"),
        ({**MINIMAL, "unit": "K"}, '`unit` must be one of "C", "F", not "K"'),
        ({**MINIMAL, "at": [1, "2"]}, '`at` must be null or array, not [1, "2"]'),
        ({**MINIMAL, "where": {}}, "`where.x` is missing"),
        ({**MINIMAL, "where": {"x": 1}}, "`where.x` must be a boolean, not 1"),
        ({**MINIMAL, "town": 1}, "there is no argument `town`"),
        ({**MINIMAL, "citi": 1}, "there is no argument `citi`, perhaps `city`"),
    ],
)
def test_what_does_not_fit_is_said(arguments: dict[str, object], said: str) -> None:
    with pytest.raises(CallFault) as caught:
        read_arguments(WEATHER, json.dumps(arguments))
    assert said in str(caught.value)
    assert str(caught.value).startswith("weather: ")
    assert "It takes city (string), days (integer), unit (string, optional)" in str(caught.value)


@pytest.mark.parametrize("written", ["{", "city=Oslo", '{"city": NaN}', '{"city": 1e999}', "[" * 100_000, '{"a": 1'])
def test_what_is_no_json_is_said(written: str) -> None:
    with pytest.raises(CallFault, match="not valid JSON"):
        read_arguments(WEATHER, written)


@pytest.mark.parametrize("written", ["[]", '"Oslo"', "3", "null"])
def test_arguments_are_an_object(written: str) -> None:
    with pytest.raises(CallFault, match="must be a JSON object"):
        read_arguments(WEATHER, written)


def test_a_tool_without_arguments_takes_none_in_any_form() -> None:
    ping = Tool(name="ping")
    assert read_arguments(ping, "") == read_arguments(ping, "{}") == {}
    assert usage(ping) == "It takes no arguments."


def test_keywords_that_are_not_known_are_left_to_who_answers() -> None:
    tool = Tool(name="t", parameters={"properties": {"a": {"$ref": "#/x"}, "b": True, "c": {"type": "money"}}})
    assert read_arguments(tool, '{"a": 1, "b": 2, "c": 3, "d": 4}') == {"a": 1, "b": 2, "c": 3, "d": 4}


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(["city", "days", "unit", "at", "where", "free", "other"]), _JSON))
def test_nothing_that_a_model_writes_is_an_exception_of_another_kind(arguments: dict[str, object]) -> None:
    try:
        assert read_arguments(WEATHER, json.dumps(arguments)) == arguments
    except CallFault as fault:
        said = str(fault)
        assert said.startswith("weather: ")
