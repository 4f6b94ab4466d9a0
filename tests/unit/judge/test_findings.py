"""What a reply shows of itself: each rule where it applies, and beside that where it must not."""

from __future__ import annotations

import json

import pytest

from openclaw_rl.judge.compose import Composed
from openclaw_rl.judge.evidence import clip, evidence_from_json
from openclaw_rl.judge.findings import find
from openclaw_rl.judge.heads import RulesJudge
from openclaw_rl.judge.model.panel import PanelJudge
from openclaw_rl.types import Evidence, Json, Message, Tool, ToolCall
from tests.unit.judge.talk import said, talk, thumbs, votes

READ, WRITE, TESTS = ("read", {"path": "a.txt"}), ("write_file", {"path": "a.txt", "content": "hi"}), ("bash", "pytest")
OFFERED = Tool(name="search", parameters={"properties": {"text": {"type": "string"}}, "required": ["text"]})


def calls(*made: tuple[str, Json], first: int = 0) -> Message:
    """A message that makes these calls; a text stands for the command of a shell."""
    return said(
        "assistant",
        tool_calls=tuple(
            ToolCall(
                id=f"c{first + i}",
                name=name,
                arguments=json.dumps({"command": given} if isinstance(given, str) else given),
            )
            for i, (name, given) in enumerate(made)
        ),
    )


def work(*steps: tuple[tuple[str, Json], str], asked: str = "Do it.", tools: tuple[Tool, ...] = ()) -> Evidence:
    """An agent's calls one after the other, each with its result; the last of them is the reply."""
    messages = [said("user", asked)]
    for call, result in steps:
        messages += [calls(call), said("tool", result, tool_call_id="c0")]
    return Evidence(request=tuple(messages[:-2]), reply=messages[-2], following=(messages[-1],), tools=tools)


def found(evidence: Evidence) -> list[str]:
    return [vote.raw for vote in find(evidence)]


@pytest.mark.parametrize(
    "steps",
    [
        [(READ, "text"), (READ, "text")],
        [(READ, "text"), (("ls", {}), "a.txt"), (READ, "text")],  # a look elsewhere changes nothing
        [(WRITE, "ok"), (WRITE, "ok")],
        [(("bash", "cat a.txt"), "text"), (("bash", "cat a.txt"), "text")],
        [(("a", {"x": 1, "y": 2}), "ok"), (("a", {"y": 2, "x": 1}), "ok")],
        [(("a", {}), "Error: unknown argument x"), (("a", {}), "Error: unknown argument x")],
    ],
)
def test_the_same_call_with_nothing_new_in_between_is_a_repeat(steps: list[tuple[tuple[str, Json], str]]) -> None:
    assert "called again with the same arguments" in found(work(*steps))[0]


@pytest.mark.parametrize(
    "steps",
    [
        [(READ, "text")],
        [(READ, "text"), (("read", {"path": "b.txt"}), "text")],
        [(TESTS, "1 failed"), (("edit", {"path": "a.py"}), "ok"), (TESTS, "1 failed")],
        [(("get_status", {}), "running"), (("get_status", {}), "done")],  # its answer was new
        [(READ, "Error: connection timed out"), (READ, "text")],
    ],
)
def test_a_call_is_no_repeat_where_something_is_new(steps: list[tuple[tuple[str, Json], str]]) -> None:
    assert found(work(*steps)) == []


def test_two_equal_calls_of_one_reply_are_a_repeat_and_shortened_ones_are_not_compared() -> None:
    assert "called again" in found(talk(said("tool", "x", tool_call_id="c0"), reply=calls(READ, READ)))[0]
    long = clip(json.dumps({"content": "x" * 900}), 200)
    once = said("assistant", tool_calls=(ToolCall(id="c0", name="write", arguments=long),))
    request = (said("user", "Go."), once, said("tool", "ok", tool_call_id="c0"))
    assert found(Evidence(request=request, reply=once, following=(said("tool", "ok", tool_call_id="c0"),))) == []


def test_a_person_in_between_is_something_new() -> None:
    history = (said("user", "Read it."), calls(READ), said("tool", "text", tool_call_id="c0"))
    after = Evidence(
        history=history, request=(said("user", "Again."),), reply=calls(READ), following=(said("tool", "text"),)
    )
    assert found(after) == []


@pytest.mark.parametrize(
    ("result", "is_at_fault"),
    [
        ("Error: unknown tool 'bash'", True),
        ("TypeError: f() got an unexpected keyword argument 'x'", True),
        ("cat: a.txt: No such file or directory", True),
        ("bash: foo: command not found", True),
        ("Error: missing required argument: path", True),
        ("Error: connection timed out", False),
        ("HTTP 503 service unavailable", False),
        ("1 failed, 3 passed", False),
        ("README.md says: unknown tool 'x' is an error", False),
        ("fine", False),
    ],
)
def test_an_error_counts_only_where_the_call_caused_it(result: str, is_at_fault: bool) -> None:
    evidence = work((("bash", "run a.txt"), result))
    assert found(evidence) == (["finding: bash failed by how it was called"] if is_at_fault else [])


def test_where_a_person_speaks_an_error_is_theirs_to_judge() -> None:
    result = said("tool", "bash: foo: command not found", tool_call_id="c0")
    assert found(talk(result, "never mind, thanks", reply=calls(("bash", "foo")))) == []


def test_a_cut_answer_and_an_empty_one() -> None:
    line = {"request": "hi", "reply": "and so", "next": [{"role": "user", "content": "and?"}]}
    assert found(evidence_from_json(line)) == []
    assert found(evidence_from_json({**line, "cut": True})) == ["finding: the answer was cut at its length limit"]
    assert found(talk("?", reply=" \n")) == ["finding: the reply says nothing and calls nothing"]


@pytest.mark.parametrize(
    ("call", "is_empty"),
    [
        (("write_file", {"path": "a.txt", "content": ""}), True),
        (("bash", {"command": ""}), True),
        (("search", {"text": ""}), True),
        (("search", {"text": "x", "note": ""}), False),
        (("write_file", {"path": "pkg/__init__.py", "content": ""}), False),
        (("list", {}), False),
    ],
)
def test_an_empty_call(call: tuple[str, Json], is_empty: bool) -> None:
    assert bool(found(work((call, "ok"), tools=(OFFERED,)))) is is_empty


@pytest.mark.parametrize(
    ("asked", "path", "is_elsewhere"),
    [
        ("Write the report to homework/3.txt.", "report.txt", True),
        ("Please save it as notes.md", "note.md", True),
        ("Speichere es als a.md", "b.md", True),
        ("请保存到 a.txt", "b.txt", True),
        ("Write the report to homework/3.txt.", "/home/u/homework/3.txt", False),
        ("Write the report to /home/u/3.txt.", "3.txt", False),
        ("Write the totals to out.csv", "make_totals.py", False),  # a helper on the way
        ("Fix the bug in app.py", "test_app.py", False),
        ("Write a.txt to b.txt, then save c.txt to d.txt", "e.txt", False),  # which one is not plain
    ],
)
def test_a_write_to_another_target(asked: str, path: str, is_elsewhere: bool) -> None:
    evidence = work((("write_file", {"path": path, "content": "x"}), "ok"), asked=asked)
    assert bool(found(evidence)) is is_elsewhere


def test_a_file_of_the_same_kind_beside_the_one_that_was_asked_for_is_none() -> None:
    steps = [(("write_file", {"path": name, "content": "x"}), "ok") for name in ("3.txt", "draft.txt")]
    assert found(work(*steps, asked="Write the report to 3.txt.")) == []


def last(reply: str, *, tools: tuple[Tool, ...] = ()) -> Evidence:
    return Evidence(
        request=(said("user", "Book it."),), reply=said("assistant", reply), following=(), tools=tools, is_last=True
    )


def test_at_the_end_of_a_session_an_agent_that_did_not_try_has_refused() -> None:
    refusal = "I'm sorry, but I can't book flights."
    assert found(last(refusal, tools=(OFFERED,))) == ["finding: the reply refuses, without having tried a tool"]
    assert found(last(refusal)) == []  # in a chat it may be right
    assert found(last("Booked.", tools=(OFFERED,))) == []
    assert found(talk("why?", reply=refusal, tools=(OFFERED,))) == []  # somebody answered: let a judge read it


async def test_they_hold_for_every_judge_and_are_found_before_any_vote() -> None:
    kind = votes([1, 1, 1])
    verdict = await Composed([PanelJudge(kind)]).judge(work((READ, "text"), (READ, "text")))
    assert (verdict.score, kind.asked) == (-1, [])
    assert verdict.reason.startswith("finding: read was called again")


async def test_a_person_is_still_read_for_what_they_wish() -> None:
    evidence = evidence_from_json(
        {"request": "hi", "reply": "and so", "cut": True, "next": [{"role": "user", "content": "Use metric units."}]}
    )
    verdict = await Composed([RulesJudge()]).judge(evidence)
    assert (verdict.score, verdict.hints) == (-1, ("Use metric units.",))
    assert [vote.question for vote in verdict.votes][:2] == ["score", "hint"]


async def test_an_explicit_score_of_the_person_stands() -> None:
    evidence = evidence_from_json({"request": "hi", "reply": "", "feedback": [{"score": 1}]})
    assert (await Composed([RulesJudge()]).judge(evidence)).score == 1
    assert thumbs(1).score == 1


@pytest.mark.parametrize("result", ["text", "ok", "exit code 0", '{"success": true}'])
async def test_no_error_alone_is_no_praise(result: str) -> None:
    assert (await Composed([RulesJudge()]).judge(work((READ, result)))).score == 0
