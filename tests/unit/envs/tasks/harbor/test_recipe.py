"""What the instructions of a Dockerfile do, exactly, or why they are refused."""

from __future__ import annotations

import pytest

from openclaw_rl.envs.tasks.harbor.dockerfile import parse_dockerfile
from openclaw_rl.envs.tasks.harbor.recipe import DEFAULT_PATH, Copy, MakeFolder, Recipe, Run, base_of, read_recipe
from openclaw_rl.errors import TaskError


def recipe(text: str, *, workdir: str = "") -> Recipe:
    return read_recipe(parse_dockerfile(f"FROM debian:12\n{text}"), env={"LANG": "C"}, workdir=workdir)


def only(text: str) -> Run | Copy | MakeFolder:
    (step,) = recipe(text).steps
    return step


def test_the_base_is_what_from_names() -> None:
    assert base_of(parse_dockerfile("ARG V=12\nFROM debian:${V}-slim AS main")) == "debian:12-slim"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("RUN x", "line 1 of the Dockerfile: RUN comes without FROM"),
        ("FROM a\nFROM b", "begins another stage"),
        ("ENV A=1\nFROM a", "stands before FROM"),
        ("FROM --platform=linux/arm64 a", "--platform"),
        ("FROM a b", "names one image"),
        ("ARG TARGETARCH\nFROM a", "Docker alone sets"),
    ],
)
def test_bases_that_are_not_understood_are_refused(text: str, why: str) -> None:
    with pytest.raises(TaskError, match=why):
        base_of(parse_dockerfile(text))


def test_variables_and_places_are_those_of_their_line() -> None:
    found = recipe(
        "ENV A=1\nENV A=2 B=$A\nWORKDIR /x\nWORKDIR y/../z\nRUN make\nENV C d e\nWORKDIR /end/", workdir="/w"
    )
    run = found.steps[2]
    assert isinstance(run, Run)
    assert run.workdir == "/x/z"
    assert run.env == {"PATH": DEFAULT_PATH, "LANG": "C", "A": "2", "B": "1"}
    assert (found.workdir, found.env["C"]) == ("/end", "d e")
    assert [step for step in found.steps if isinstance(step, MakeFolder)] == [
        MakeFolder(path="/x"),
        MakeFolder(path="/x/z"),
        MakeFolder(path="/end"),
    ]


def test_arguments_are_known_to_steps_and_not_to_the_box() -> None:
    found = read_recipe(
        parse_dockerfile("ARG V=1\nARG W=5\nFROM a\nARG V\nARG U=$V-x\nRUN go\nENV U=y\nRUN go"), env={}, workdir=""
    )
    first, second = found.steps
    assert isinstance(first, Run)
    assert isinstance(second, Run)
    assert {name: first.env.get(name) for name in "UVW"} == {"U": "1-x", "V": "1", "W": None}
    assert second.env["U"] == "y"
    assert found.env == {"PATH": DEFAULT_PATH, "U": "y"}


def test_commands_run_in_their_shell() -> None:
    assert only("RUN a && b") == Run(
        command="/bin/sh -c 'a && b'", workdir="/", env={"PATH": DEFAULT_PATH, "LANG": "C"}
    )
    assert getattr(only('RUN ["a", "b c"]'), "command", "") == "a 'b c'"
    assert getattr(only('SHELL ["/bin/bash", "-ec"]\nRUN a'), "command", "") == "/bin/bash -ec a"
    assert getattr(only("RUN <<E\na\nb\nE"), "command", "") == "/bin/sh -c 'a\nb\n'"
    assert getattr(only("RUN cat <<E >f\na\nE"), "command", "") == "/bin/sh -c 'cat <<E >f\na\nE\n'"


@pytest.mark.parametrize(
    ("text", "copy"),
    [
        ("COPY a b /x", None),
        ("COPY a /x", Copy(sources=("a",), to="/x", unpacks=False, line=2)),
        ("COPY . .", Copy(sources=(".",), to="/w/", unpacks=False, line=2)),
        ("COPY /a b/ to/", Copy(sources=("a", "b/"), to="/w/to/", unpacks=False, line=2)),
        ('ADD ["a b", "/x"]', Copy(sources=("a b",), to="/x", unpacks=True, line=2)),
    ],
)
def test_copies_name_what_and_where(text: str, copy: Copy | None) -> None:
    if copy is None:
        with pytest.raises(TaskError, match="goes into a folder"):
            recipe(text, workdir="/w")
    else:
        assert recipe(text, workdir="/w").steps == (copy,)


def test_what_says_nothing_of_the_files_has_no_effect() -> None:
    assert recipe('EXPOSE 80\nLABEL a=b\nCMD ["x"]\nMAINTAINER me\nSTOPSIGNAL 9\nUSER root').steps == ()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("ENTRYPOINT x", "ENTRYPOINT is not interpreted"),
        ("VOLUME /x", "VOLUME is not interpreted"),
        ("HEALTHCHECK CMD x", "HEALTHCHECK is not interpreted"),
        ("ONBUILD RUN x", "ONBUILD is not interpreted"),
        ("USER app", "makes the box work as app; boxes work as root"),
        ("RUN --mount=type=cache,target=/x y", "has --mount"),
        ("RUN", "runs nothing"),
        ("RUN <<-E\na\nE", "a heredoc of a form"),
        ("RUN <<E\n#!/usr/bin/python3\nE", "a heredoc of a form"),
        ("COPY --from=b a /x", "has --from=b"),
        ("COPY <<E /x\na\nE", "of a heredoc"),
        ("COPY a", "names what is copied"),
        ("COPY ../a /x", "leads out of the folder"),
        ("ADD https://a.org/x /x", "fetches https://a.org/x"),
        ("ADD git@a.org:x /x", "fetches git@a.org:x"),
        ("ENV", "sets nothing"),
        ("ENV A=1 B", "written NAME=VALUE"),
        ("ARG BUILDARCH", "Docker alone sets"),
    ],
)
def test_everything_else_is_refused_with_its_line(text: str, why: str) -> None:
    with pytest.raises(TaskError, match=f"line 2 of the Dockerfile: .*{why}"):
        recipe(text)
