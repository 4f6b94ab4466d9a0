"""Observations as text, schemas as tools."""

from __future__ import annotations

from typing import Any

import pytest

from openclaw_rl.envs.tasks.openenv.shapes import (
    MAX_SHOWN_CHARS,
    CallToolAction,
    Schemas,
    shown,
    text_of,
    text_of_result,
)


@pytest.mark.parametrize(
    ("observation", "text"),
    [
        ({"prompt": "Guess.", "metadata": {"seed": 1}, "hint": None, "board": []}, "Guess."),
        ({"metadata": {"seed": 1}}, ""),
        ({"tries": 0}, '{\n  "tries": 0\n}'),
        ({"said": "no", "won": False}, '{\n  "said": "no",\n  "won": false\n}'),
    ],
)
def test_an_observation_is_its_only_text_or_json(observation: dict[str, Any], text: str) -> None:
    assert text_of(observation) == text


@pytest.mark.parametrize(
    ("result", "told"),
    [
        ("plain", ("plain", False)),
        ({"sum": 3}, ('{\n  "sum": 3\n}', False)),
        ({"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}, ("a\nb", False)),
        ({"content": [{"type": "text", "text": "no"}], "is_error": True}, ("no", True)),
        ({"content": [{"type": "text", "text": "no"}], "isError": True}, ("no", True)),
        ({"content": [{"type": "image", "data": "x"}]}, ('{\n  "type": "image",\n  "data": "x"\n}', False)),
    ],
)
def test_a_result_is_what_the_tool_says(result: Any, told: tuple[str, bool]) -> None:
    assert text_of_result(result) == told


def test_what_is_too_long_is_cut_and_says_so() -> None:
    assert shown("x" * MAX_SHOWN_CHARS) == "x" * MAX_SHOWN_CHARS
    assert shown("x" * (MAX_SHOWN_CHARS + 5)) == "x" * MAX_SHOWN_CHARS + "\n[5 more characters]"


@pytest.mark.parametrize(
    ("action", "calls_tools"),
    [
        (CallToolAction.model_json_schema(), True),
        ({"title": "Action", "properties": {"metadata": {}}}, True),
        ({"title": "Wait", "properties": {"metadata": {}}}, False),
        ({"title": "Action", "properties": {"metadata": {}, "number": {}}}, False),
        ({"properties": {"tool_name": {}, "type": {"const": "poke"}}}, False),
        ({"properties": "none"}, False),
        ({"anyOf": []}, False),
    ],
)
def test_the_schema_of_actions_says_whether_the_server_lists_tools(action: dict[str, Any], calls_tools: bool) -> None:
    assert Schemas(action=action).calls_tools is calls_tools


def test_an_agent_is_not_asked_for_metadata() -> None:
    schema = {
        "properties": {"number": {"$ref": "#/$defs/n"}, "metadata": {}},
        "required": ["number"],
        "$defs": {"n": {}},
    }
    told = Schemas(action=schema).step_parameters
    assert told == {"properties": {"number": {"$ref": "#/$defs/n"}}, "required": ["number"], "$defs": {"n": {}}}
    assert Schemas(action={"anyOf": [1]}).step_parameters == {"anyOf": [1]}
