"""The instructions of a Dockerfile -> the steps that make its image: exactly what Docker would do, or a refusal.

    FROM ubuntu:24.04            which image it stands on
    ENV, ARG, WORKDIR, SHELL     what the steps after it begin with
    RUN, COPY, ADD of files      steps
    EXPOSE, LABEL, CMD           nothing: they say nothing of the files, and a box has a command of its own
    everything else              refused, with the line and the reason

It does not know where an image comes from, nor how a step is done.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from openclaw_rl.envs.tasks.harbor.dockerfile import Instruction, expand, split_words

DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

_WITHOUT_EFFECT = frozenset({"EXPOSE", "LABEL", "CMD", "MAINTAINER", "STOPSIGNAL"})
_BUILDERS_OWN = re.compile(r"(TARGET|BUILD)(PLATFORM|OS|ARCH|VARIANT)")
_ROOT = frozenset({"root", "0", "root:root", "0:0", "root:0"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A command in a shell of its own."""

    command: str
    workdir: str
    env: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """Files of the task into the image. `unpacks`: archives among them would be unpacked on the way."""

    sources: tuple[str, ...]
    to: str
    unpacks: bool
    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MakeFolder:
    path: str


Step = Run | Copy | MakeFolder


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How an image is made out of another. `env` and `workdir` are those of a box of it."""

    steps: tuple[Step, ...]
    env: Mapping[str, str]
    workdir: str


def base_of(instructions: Sequence[Instruction]) -> str:
    """The image that a Dockerfile starts from; refused where it has several stages."""
    stages = [one for one in instructions if one.name == "FROM"]
    if not stages:
        raise instructions[0].mistake("comes without FROM before it")
    if len(stages) > 1:
        raise stages[1].refusal("begins another stage, and stages are not interpreted here")
    arguments: dict[str, str] = {}
    for one in instructions[: instructions.index(stages[0])]:
        if one.name != "ARG":
            raise one.mistake("stands before FROM, where only ARG does")
        arguments |= {name: value or "" for name, value in _arguments(one, arguments).items()}
    if stages[0].flags:
        raise stages[0].refusal(f"has {stages[0].flags[0]}, which is not interpreted here")
    words = split_words(stages[0])
    if len(words) != 1 and [word.upper() for word in words[1:2]] != ["AS"]:
        raise stages[0].mistake("names one image")
    return expand(stages[0], words[0], arguments)


def read_recipe(instructions: Sequence[Instruction], *, env: Mapping[str, str], workdir: str) -> Recipe:
    """What follows FROM, on an image that itself has this environment and working directory."""
    start = next(number for number, one in enumerate(instructions) if one.name == "FROM")
    reader = _Reader(env={"PATH": DEFAULT_PATH} | dict(env), workdir=workdir or "/")
    for one in instructions[:start]:
        reader.outer |= _arguments(one, {name: value or "" for name, value in reader.outer.items()})
    for one in instructions[start + 1 :]:
        reader.read(one)
    return Recipe(steps=tuple(reader.steps), env=reader.env, workdir=reader.workdir)


def _arguments(instruction: Instruction, known: Mapping[str, str]) -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    for word in split_words(instruction):
        name, equals, value = word.partition("=")
        if _BUILDERS_OWN.fullmatch(name):
            raise instruction.refusal(f"asks for {name}, which Docker alone sets")
        found[name] = expand(instruction, value, known) if equals else None
    return found


@dataclass(slots=True, kw_only=True)
class _Reader:
    env: dict[str, str]
    workdir: str
    outer: dict[str, str | None] = field(default_factory=dict)
    """Arguments before FROM: known after it where they are named again."""
    arguments: dict[str, str] = field(default_factory=dict)
    shell: tuple[str, ...] = ("/bin/sh", "-c")
    steps: list[Step] = field(default_factory=list)

    @property
    def variables(self) -> dict[str, str]:
        return self.arguments | self.env

    def read(self, one: Instruction) -> None:
        match one.name:
            case "RUN":
                self._run(one)
            case "COPY" | "ADD":
                self._copy(one)
            case "ENV":
                self.env |= self._pairs(one)
            case "ARG":
                given = {name: self.outer.get(name) if v is None else v for name, v in self._given(one).items()}
                self.arguments |= {name: value for name, value in given.items() if value is not None}
            case "WORKDIR":
                self.workdir = self._place(expand(one, one.text, self.variables))
                self.steps.append(MakeFolder(path=self.workdir))
            case "USER":
                if expand(one, one.text, self.variables) not in _ROOT:
                    raise one.refusal(f"makes the box work as {one.text}; boxes work as root here")
            case "SHELL":
                self.shell = self._list(one) or self.shell
            case name if name not in _WITHOUT_EFFECT:
                raise one.refusal("is not interpreted here")

    def _given(self, one: Instruction) -> dict[str, str | None]:
        return _arguments(one, self.variables)

    def _place(self, path: str) -> str:
        """An absolute path; `.` and `..` in it as Docker reads them, without a look at links."""
        parts: list[str] = []
        for part in PurePosixPath(self.workdir, path).parts[1:]:
            if part == "..":
                parts = parts[:-1]
            else:
                parts.append(part)
        return "/" + "/".join(parts)

    def _pairs(self, one: Instruction) -> dict[str, str]:
        words = split_words(one)
        if not words:
            raise one.mistake("sets nothing")
        if "=" not in words[0]:
            return {words[0]: expand(one, one.text.removeprefix(words[0]).strip(), self.variables)}
        pairs = {}
        for word in words:
            name, equals, value = word.partition("=")
            if not equals:
                raise one.mistake(f"is written NAME=VALUE, got {word}")
            pairs[expand(one, name, self.variables)] = expand(one, value, self.variables)
        return pairs

    def _list(self, one: Instruction) -> tuple[str, ...]:
        """A JSON list of words; empty where the text is none."""
        if not one.text.startswith("["):
            return ()
        try:
            words = json.loads(one.text)
        except ValueError:
            return ()
        return tuple(words) if isinstance(words, list) and all(isinstance(word, str) for word in words) else ()

    def _run(self, one: Instruction) -> None:
        if one.flags:
            raise one.refusal(f"has {one.flags[0]}, which is not interpreted here")
        if not one.text:
            raise one.mistake("runs nothing")
        words = self._list(one)
        if not words:
            words = (*self.shell, self._script(one))
        self.steps.append(Run(command=shlex.join(words), workdir=self.workdir, env=self.variables))

    def _script(self, one: Instruction) -> str:
        if not one.heredocs:
            return one.text
        if len(split_words(one)) > 1:
            return f"{one.text}\n{one.heredocs}"
        # A heredoc alone is the script itself.
        *lines, _ = one.heredocs.splitlines(keepends=True)
        if one.text.startswith("<<-") or (lines and lines[0].startswith("#!")):
            raise one.refusal("has a heredoc of a form that is not interpreted here")
        return "".join(lines)

    def _copy(self, one: Instruction) -> None:
        if one.flags:
            raise one.refusal(f"has {one.flags[0]}, which is not interpreted here")
        if one.heredocs:
            raise one.refusal("of a heredoc is not interpreted here")
        words = list(self._list(one)) or split_words(one)
        if len(words) < 2:
            raise one.mistake("names what is copied, and where to")
        *sources, to = (expand(one, word, self.variables) for word in words)
        for source in sources:
            if "://" in source or source.startswith("git@"):
                raise one.refusal(f"fetches {source}, which is not done here")
            if ".." in PurePosixPath(source).parts:
                raise one.mistake(f"leads out of the folder of the Dockerfile: {source}")
        is_folder = to.endswith(("/", "/.", "/..")) or to in (".", "..")
        place = self._place(to)
        if len(sources) > 1 and not is_folder:
            raise one.mistake(f"of several sources goes into a folder, whose name ends with /; got {to}")
        self.steps.append(
            Copy(
                sources=tuple(source.lstrip("/") or "." for source in sources),
                to=place.rstrip("/") + "/" if is_folder else place,
                unpacks=one.name == "ADD",
                line=one.line,
            )
        )
