"""The text of a Dockerfile -> its instructions: comments gone, continued lines joined, heredocs beside their line.

It knows the form of an instruction and the expansion of variables in it; `recipe` knows what an instruction means.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from openclaw_rl.errors import TaskError

_DIRECTIVE = re.compile(r"#\s*([a-zA-Z]+)\s*=\s*(.+?)\s*")
_CONTINUED = re.compile(r"\\[ \t]*$")
_HEREDOC = re.compile(r"""\d*<<(-?)(['"]?)([A-Za-z_][A-Za-z0-9_.]*)\2""")
_INSTRUCTION = re.compile(r"([A-Za-z]+)(?:\s+(.*))?", re.DOTALL)
_FLAG = re.compile(r"--([a-z]+)(?:=(\S*))?\s+")
_VARIABLE = re.compile(r"\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)(?:(:?[-+])([^{}]*))?\})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Instruction:
    """One instruction. `heredocs`: the lines that follow it, with their ends, as a shell would read them."""

    line: int
    name: str
    flags: tuple[str, ...]
    text: str
    heredocs: str = ""

    def refusal(self, reason: str) -> TaskError:
        """Why it is not interpreted here; Docker may well do it."""
        return TaskError(
            f"line {self.line} of the Dockerfile: {self.name} {reason}; make the image with Docker, and name it as "
            "[environment] docker_image"
        )

    def mistake(self, reason: str) -> TaskError:
        """What nobody can interpret."""
        return TaskError(f"line {self.line} of the Dockerfile: {self.name} {reason}")


def parse_dockerfile(text: str) -> list[Instruction]:
    """`TaskError` names the line that is none."""
    lines = text.splitlines()
    _check_directives(lines)
    found = []
    waiting = iter(enumerate(lines, start=1))
    for number, line in waiting:
        if _is_nothing(line):
            continue
        while _CONTINUED.search(line):
            line = _CONTINUED.sub("", line)
            line += next((more for _, more in waiting if not _is_nothing(more)), "")
        found.append(_instruction(number, line.strip(), waiting))
    if not found:
        raise TaskError("the Dockerfile has no instruction")
    return found


def _is_nothing(line: str) -> bool:
    return not line.strip() or line.lstrip().startswith("#")


def _check_directives(lines: list[str]) -> None:
    for line in lines:
        directive = _DIRECTIVE.fullmatch(line.strip())
        if directive is None:
            return
        name, value = directive[1].lower(), directive[2]
        if name == "escape" and value != "\\":
            raise TaskError("the Dockerfile has another escape character, which is not interpreted here")
        if name == "syntax" and not re.fullmatch(r"(docker\.io/)?docker/dockerfile(:(1|latest)[\w.-]*)?", value):
            raise TaskError(f"the Dockerfile is written for {value}, which is not interpreted here")


def _instruction(number: int, line: str, following: Iterator[tuple[int, str]]) -> Instruction:
    found = _INSTRUCTION.fullmatch(line)
    if found is None:
        raise TaskError(f"line {number} of the Dockerfile is no instruction: {line[:80]!r}")
    flags, (name, rest) = [], found.groups()
    rest = rest or ""
    while flag := _FLAG.match(rest):
        flags.append(flag[0].strip())
        rest = rest[flag.end() :]
    instruction = Instruction(line=number, name=name.upper(), flags=tuple(flags), text=rest.strip())
    if instruction.name not in ("RUN", "COPY", "ADD"):
        return instruction
    heredocs = "".join(_heredoc(instruction, word, following) for word in split_words(instruction))
    return Instruction(
        line=number, name=instruction.name, flags=instruction.flags, text=instruction.text, heredocs=heredocs
    )


def _heredoc(instruction: Instruction, word: str, following: Iterator[tuple[int, str]]) -> str:
    found = _HEREDOC.fullmatch(word)
    if found is None:
        if re.match(r"\d*<<[^<]", word):
            raise instruction.refusal(f"has a heredoc of a form that is not interpreted here, {word}")
        return ""
    body = ""
    for _, line in following:
        body += f"{line}\n"
        if (line.lstrip("\t") if found[1] else line) == found[3]:
            return body
    raise instruction.mistake(f"has a heredoc without its end, {found[3]}")


def split_words(instruction: Instruction) -> list[str]:
    """The text's words as they stand, quotes and all."""
    words, word, quote, is_escaped = [], "", "", False
    for letter in instruction.text:
        if not quote and not is_escaped and letter.isspace():
            words.append(word)
            word = ""
            continue
        word += letter
        if is_escaped:
            is_escaped = False
        elif letter == "\\" and quote != "'":
            is_escaped = True
        elif letter in "'\"" and quote in ("", letter):
            quote = "" if quote else letter
    return [one for one in (*words, word) if one]


def expand(instruction: Instruction, word: str, variables: Mapping[str, str]) -> str:
    """A word with its variables put in and its quotes taken off, as in every instruction but RUN."""
    out, at, quote = "", 0, ""
    while at < len(word):
        letter = word[at]
        if letter in "'\"" and quote in ("", letter):
            quote = "" if quote else letter
        elif letter == "\\" and quote != "'" and at + 1 < len(word):
            at += 1
            out += word[at] if not quote or word[at] in '"$\\' else f"\\{word[at]}"
        elif letter == "$" and quote != "'":
            found = _VARIABLE.match(word, at)
            if found is None:
                raise instruction.refusal(f"has an expansion that is not interpreted here, {word[at : at + 20]}")
            out += _value(found, variables)
            at = found.end() - 1
        else:
            out += letter
        at += 1
    if quote:
        raise instruction.mistake(f"has a quote without its end: {word[:80]}")
    return out


def _value(found: re.Match[str], variables: Mapping[str, str]) -> str:
    plain, braced, operator, word = found.groups()
    value = variables.get(plain or braced)
    is_there = value is not None if operator in ("-", "+") else bool(value)
    if operator in (":-", "-"):
        return value if is_there and value is not None else word
    if operator in (":+", "+"):
        return word if is_there else ""
    return value or ""
