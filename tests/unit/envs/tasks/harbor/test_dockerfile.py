"""The form of a Dockerfile: lines, comments, heredocs, flags, variables."""

from __future__ import annotations

import pytest

from openclaw_rl.envs.tasks.harbor.dockerfile import Instruction, expand, parse_dockerfile, split_words
from openclaw_rl.errors import TaskError


def instruction(text: str) -> Instruction:
    return Instruction(line=1, name="ENV", flags=(), text=text)


def test_comments_go_and_continued_lines_are_joined() -> None:
    found = parse_dockerfile(
        "# hello\nfrom debian:12\n\nRUN a && \\\n  # aside\n\n  b \\ \n  c\nWORKDIR /x # no comment\n"
    )
    assert [(one.line, one.name, one.text) for one in found] == [
        (2, "FROM", "debian:12"),
        (4, "RUN", "a &&   b   c"),
        (9, "WORKDIR", "/x # no comment"),
    ]


def test_heredocs_are_beside_their_instruction() -> None:
    found = parse_dockerfile("FROM a\nRUN <<EOF\nRUN no\nEOF\nRUN cat <<-'A' <<B >f\n\tx\n\tA\ny\nB\nRUN echo '<<C'\n")
    assert [one.heredocs for one in found] == ["", "RUN no\nEOF\n", "\tx\n\tA\ny\nB\n", ""]


def test_flags_stand_apart() -> None:
    found = parse_dockerfile("COPY --chown=1:1 --link a b")[0]
    assert (found.flags, found.text) == (("--chown=1:1", "--link"), "a b")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "no instruction"),
        ("# only\n", "no instruction"),
        ("FROM a\n{x}", "line 2 of the Dockerfile is no instruction"),
        ("RUN <<EOF\nx\n", "a heredoc without its end, EOF"),
        ("RUN <<${X}\n", "a form that is not interpreted here"),
        ("# escape=`\nFROM a", "another escape character"),
        ("# syntax=nix/dockerfile:2\nFROM a", "written for nix/dockerfile:2"),
    ],
)
def test_what_is_none_is_named(text: str, why: str) -> None:
    with pytest.raises(TaskError, match=why.replace("$", r"\$").replace("{", r"\{")):
        parse_dockerfile(text)


@pytest.mark.parametrize(
    "line", ["# syntax=docker/dockerfile:1", "# syntax = docker/dockerfile:1.7-labs", "# escape=\\"]
)
def test_usual_directives_are_heard(line: str) -> None:
    assert len(parse_dockerfile(f"{line}\nFROM a")) == 1


def test_words_keep_their_quotes() -> None:
    assert split_words(instruction(r"""a="b c" 'd "e' f\ g""")) == ['a="b c"', """'d "e'""", r"f\ g"]


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("$A/${A}x", "one/onex"),
        ("'$A' \"$A\"", "$A one"),
        (r"\$A", "$A"),
        (r'"\n\$A"', r"\n$A"),
        ("${NONE:-d} ${EMPTY:-d} ${EMPTY-d} ${A:-d}", "d d  one"),
        ("${A:+y} ${EMPTY:+y} ${EMPTY+y} ${NONE+y}", "y  y "),
        ("$NONE.", "."),
    ],
)
def test_variables_are_put_in_as_docker_does(word: str, value: str) -> None:
    assert expand(instruction(word), word, {"A": "one", "EMPTY": ""}) == value


@pytest.mark.parametrize(
    ("word", "why"), [("${A%x}", "an expansion"), ("$(date)", "an expansion"), ("'a", "without its end")]
)
def test_other_expansions_are_refused(word: str, why: str) -> None:
    with pytest.raises(TaskError, match=why):
        expand(instruction(word), word, {"A": "one"})
