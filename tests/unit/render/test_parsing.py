from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterable
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openclaw_rl.render.calls import new_call_id
from openclaw_rl.render.parsing import AnswerForm, StreamParser
from openclaw_rl.types import AnswerEvent, ReasoningDelta, TextDelta, Tool, ToolArgumentsDelta, ToolCallStart

PROPERTIES = {"text": {"type": "string"}, "count": {"type": "integer"}, "maybe": {"type": ["string", "null"]}}
TOOL = Tool(name="f", parameters={"type": "object", "properties": PROPERTIES})
JSON, XML = AnswerForm(), AnswerForm(calls="xml")
THINKS, STARTS_THINKING = AnswerForm(thinks=True), AnswerForm(thinks=True, opens_thinking=True)


def parse(pieces: Iterable[str], form: AnswerForm = JSON, *, tools: tuple[Tool, ...] = (TOOL,)) -> list[AnswerEvent]:
    numbers = itertools.count()
    parser = StreamParser(form, tools, new_id=lambda: f"id{next(numbers)}")
    return [event for piece in pieces for event in parser.feed(piece)] + parser.finish()


def joined(events: Iterable[AnswerEvent]) -> list[object]:
    """Neighbouring deltas of one kind joined: what an answer is, however it was cut."""
    out: list[object] = []
    for event in events:
        match event:
            case ToolCallStart(index, call_id, name):
                out += [(index, call_id, name), f"arguments {index}: "]
            case ToolArgumentsDelta(index, text):
                assert isinstance(out[-1], str)
                assert out[-1].startswith(f"arguments {index}: ")
                out[-1] += text
            case TextDelta(text) | ReasoningDelta(text):
                kind = "text: " if isinstance(event, TextDelta) else "thought: "
                if out and isinstance(out[-1], str) and out[-1].startswith(kind):
                    out[-1] += text
                else:
                    out.append(kind + text)
    return out


def call(index: int, name: str, arguments: str) -> list[object]:
    return [(index, f"id{index}", name), f"arguments {index}: {arguments}"]


def tagged(body: str) -> str:
    return f"<tool_call>{body}</tool_call>"


F, G = tagged('{"name": "f"}'), tagged('{"name": "g"}')

CASES: list[tuple[AnswerForm, str, list[object]]] = [
    (JSON, "Hello.", ["text: Hello."]),
    (JSON, "", []),
    (JSON, tagged('\n{"name": "f", "arguments": {"a": 1}}\n'), call(0, "f", '{"a": 1}')),
    (JSON, tagged('{"name":"f","arguments":{ "a" :1 }}'), call(0, "f", '{ "a" :1 }')),
    # Any order of the keys; the other usual name of the second one; no arguments at all.
    (JSON, tagged('{"arguments": {"a": [1]}, "name": "f"}'), call(0, "f", '{"a": [1]}')),
    (JSON, tagged('{"name": "f", "parameters": {"a": 1}}'), call(0, "f", '{"a": 1}')),
    (JSON, tagged('{"name": "f"}'), call(0, "f", "{}")),
    # Braces, quotes and tags inside of strings.
    (
        JSON,
        tagged('{"name": "f", "arguments": {"a": "}\\"{</tool_call>"}}'),
        call(0, "f", '{"a": "}\\"{</tool_call>"}'),
    ),
    # Text around a call and several calls; the layout after them is dropped.
    (JSON, f"Hi\n{F}\n\nBye", ["text: Hi\n", *call(0, "f", "{}"), "text: Bye"]),
    (JSON, f"{F}\n{G}\n", [*call(0, "f", "{}"), *call(1, "g", "{}")]),
    # Arguments as a JSON string with an object in it, or with something else in it; as other values.
    (JSON, tagged('{"name": "f", "arguments": "{\\"a\\": 1}"}'), call(0, "f", '{"a": 1}')),
    (
        JSON,
        tagged('{"name": "f", "arguments": "{\\"a\\": \\"\\\\ud800\\"}"}'),
        call(0, "f", '"{\\"a\\": \\"\\\\ud800\\"}"'),
    ),
    (JSON, tagged('{"name": "f", "arguments": "plain"}'), call(0, "f", '"plain"')),
    (JSON, tagged('{"name": "f", "arguments": null}'), call(0, "f", "null")),
    # Cut off after its name: a call with what there is of it.
    (JSON, '<tool_call>{"name": "f", "arguments": {"a": "b\\', call(0, "f", '{"a": "b\\')),
    (JSON, '<tool_call>{"name": "f", "arguments": "{\\"a', call(0, "f", '"{\\"a')),
    (JSON, '<tool_call>{"name": "f", "arg', [*call(0, "f", ""), 'text: "arg']),
    (JSON, '<tool_call>{"name": "f", "arguments": {}}', call(0, "f", "{}")),
    # A brace too few, a brace too many, a comma too many, no closing tag but more text.
    (JSON, tagged('{"name": "f", "arguments": {"a": 1}\n'), call(0, "f", '{"a": 1}')),
    (JSON, tagged('{"name": "f", "arguments": {"a": 1'), call(0, "f", '{"a": 1')),
    (JSON, tagged('{"name": "f", "arguments": {}}}\n'), call(0, "f", "{}")),
    (JSON, tagged('{"name": "f", "arguments": {},}'), call(0, "f", "{}")),
    (JSON, '<tool_call>{"name": "f", "arguments": {}} and so on', [*call(0, "f", "{}"), "text:  and so on"]),
    (JSON, f"<tool_call>{F}", ["text: <tool_call>", *call(0, "f", "{}")]),
    # Thinking: at the start only; newlines next to the tags are layout.
    (THINKS, "<think>\nwell\n\nyes\n</think>\n\nHi", ["thought: well\n\nyes", "text: Hi"]),
    (THINKS, " \n<think>well</think>Hi", ["thought: well", "text: Hi"]),
    (THINKS, "<think>\n\n</think>\n\nHi", ["text: Hi"]),
    (THINKS, "<think>cut off\n", ["thought: cut off\n"]),
    (THINKS, "<think>cut off</thi", ["thought: cut off</thi"]),
    (THINKS, "<think>a<tool_call>b</think>c", ["thought: a<tool_call>b", "text: c"]),
    (STARTS_THINKING, "well\n</think>\n\nHi", ["thought: well", "text: Hi"]),
    (STARTS_THINKING, f"x</think>\n\n{F}", ["thought: x", *call(0, "f", "{}")]),
    # XML: values get the JSON types that the schema declares.
    (
        XML,
        "<tool_call>\n<function=f>\n<parameter=text>\n12\n</parameter>\n<parameter=count>\n12\n</parameter>\n"
        "<parameter=other>\nno JSON\n</parameter>\n<parameter=maybe>null</parameter>\n</function>\n</tool_call>\nBye",
        [*call(0, "f", '{"text": "12", "count": 12, "other": "no JSON", "maybe": null}'), "text: Bye"],
    ),
    (
        XML,
        tagged("<function=f><parameter=text>a\n\nb\n\n</parameter></function>"),
        call(0, "f", '{"text": "a\\n\\nb\\n"}'),
    ),
    (XML, tagged("<function=g><parameter=x>NaN</parameter></function>"), call(0, "g", '{"x": "NaN"}')),
    (XML, tagged("<function=f></function>"), call(0, "f", "{}")),
    (XML, "<tool_call><function=f><parameter=text>cut", call(0, "f", '{"text": "cut"')),
]


@pytest.mark.parametrize(("form", "text", "expected"), CASES)
def test_answers(form: AnswerForm, text: str, expected: list[object]) -> None:
    assert joined(parse([text], form)) == expected
    assert joined(parse(text, form)) == expected  # character by character


@pytest.mark.parametrize(
    ("form", "text"),
    [
        (JSON, tagged("weather")),
        (JSON, tagged("{}")),
        (JSON, tagged('{"name": 3, "arguments": {}}')),
        (JSON, tagged('{"name": "", "arguments": {}}')),
        (JSON, tagged('{"name": "\\ud800"}')),
        (JSON, tagged('{"name": "bad \\escape"}')),
        (JSON, tagged('{"type": "function", "name": "f"}')),
        (JSON, tagged('{"arguments": {"a": 1}, "arguments": {}, "name": "f"}')),
        (JSON, '<tool_call>\n{"name": "f'),
        (JSON, '<tool_call>{"arguments": {"a": 1}'),
        (JSON, "a <tool_cal"),
        (JSON, "<think>no thinker</think>"),
        (THINKS, "Hi <think>x</think>"),
        (THINKS, " Hi"),
        (THINKS, " <thin"),
        (XML, "<tool_call><function=f"),
        (XML, tagged("<function=></function>")),
        (XML, tagged('{"name": "f"}')),
    ],
)
def test_what_is_no_call_and_no_thought_is_delivered_as_it_is(form: AnswerForm, text: str) -> None:
    assert joined(parse([text], form)) == [f"text: {text}"]
    assert joined(parse(text, form)) == [f"text: {text}"]


FRAGMENTS = st.sampled_from(
    [
        *(
            "<tool_call>",
            "</tool_call>",
            '{"name": "f", ',
            '"arguments": ',
            "{",
            "}",
            '"',
            "\\",
            "[1]",
            '"a": "b"',
            ",",
            ":",
        ),
        *(
            "<think>",
            "</think>",
            "<function=f>",
            "<parameter=text>",
            "</parameter>",
            "</function>",
            "<",
            "text",
            " ",
            "\n",
        ),
        *(
            '<tool_call>\n{"name": "f", "arguments": {"a": "b"}}\n</tool_call>',
            '{"arguments": ["x"], "name": "g"}',
            "🐍",
        ),
    ]
)
TEXTS = st.lists(FRAGMENTS, max_size=14).map("".join)
FORMS = st.builds(
    AnswerForm, thinks=st.booleans(), opens_thinking=st.booleans(), calls=st.sampled_from(["json", "xml"])
)


@given(text=TEXTS, form=FORMS, cuts=st.lists(st.integers(0, 120), max_size=8))
def test_how_the_text_was_cut_makes_no_difference(text: str, form: AnswerForm, cuts: list[int]) -> None:
    edges = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    pieces = [text[begin:end] for begin, end in itertools.pairwise(edges)]
    assert joined(parse(pieces, form)) == joined(parse([text], form))


@given(text=TEXTS, calls=st.sampled_from(["json", "xml"]))
def test_an_answer_without_calls_loses_nothing(text: str, calls: Literal["json", "xml"]) -> None:
    events = parse(text, AnswerForm(calls=calls))
    if not any(isinstance(event, ToolCallStart) for event in events):
        assert "".join(event.text for event in events if isinstance(event, TextDelta)) == text


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8) | st.sampled_from(["</tool_call>", "<tool_call>{"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


@given(
    arguments=st.dictionaries(st.text(max_size=5), VALUES, max_size=4),
    indent=st.none() | st.integers(0, 3),
    ascii_only=st.booleans(),
    arguments_first=st.booleans(),
)
def test_arguments_are_the_very_text_that_was_sampled(
    arguments: dict[str, object], indent: int | None, ascii_only: bool, arguments_first: bool
) -> None:
    written = json.dumps(arguments, indent=indent, ensure_ascii=ascii_only)
    keys = ['"name": "f"', f'"arguments": {written}']
    text = "<tool_call>\n{" + ", ".join(reversed(keys) if arguments_first else keys) + "}\n</tool_call>"
    assert joined(parse(text)) == call(0, "f", written)


def test_without_tools_everything_is_text() -> None:
    text = '<tool_call>{"name": "f"}</tool_call>'
    assert parse(["<", text], tools=()) == [TextDelta("<"), TextDelta(text)]
    assert joined(parse("<think>x</think>" + text, THINKS, tools=())) == ["thought: x", f"text: {text}"]


def test_text_is_held_back_only_while_it_may_begin_a_tag() -> None:
    parser = StreamParser(JSON, [TOOL])
    assert parser.feed("Hello <") == [TextDelta("Hello ")]
    assert parser.feed("tool_") == []
    assert parser.feed("box>") == [TextDelta("<tool_box>")]


def test_a_call_streams_from_its_name_on() -> None:
    parser = StreamParser(JSON, [TOOL], new_id=lambda: "id")
    assert parser.feed('<tool_call>\n{"name": "f') == []
    assert parser.feed('"') == [ToolCallStart(0, "id", "f")]
    assert parser.feed(', "arguments": {"a": "x') == [ToolArgumentsDelta(0, '{"a": "x')]
    assert parser.feed('y"}') == [ToolArgumentsDelta(0, 'y"}')]
    assert parser.feed("}\n</tool_call>") == []


@pytest.mark.parametrize("form", [JSON, XML])
def test_a_given_beginning_is_fed_like_the_rest(form: AnswerForm) -> None:
    opening, rest = {
        "json": ('<tool_call>\n{"name": "f", "arguments":', ' {"count": 1}}\n</tool_call>'),
        "xml": ("<tool_call>\n<function=f>\n", "<parameter=count>\n1\n</parameter>\n</function>\n</tool_call>"),
    }[form.calls]
    assert joined(parse([opening, rest], form)) == call(0, "f", '{"count": 1}')


def test_deeply_nested_arguments_are_only_passed_on() -> None:
    deep = '{"a":' * 5_000 + "1" + "}" * 5_000
    text = f'<tool_call>{{"name": "f", "arguments": {json.dumps(deep)}}}</tool_call>'
    assert joined(parse([text])) == call(0, "f", json.dumps(deep))
    assert joined(parse([f'<tool_call>{{"name": "f", "arguments": {deep}}}</tool_call>'])) == call(0, "f", deep)


def test_call_ids_are_letters_and_digits() -> None:
    ids = {new_call_id() for _ in range(100)}
    assert len(ids) == 100
    assert all(re.fullmatch(r"call[A-Za-z0-9]{20}", call_id) for call_id in ids)
