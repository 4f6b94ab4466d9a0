"""A line of the chat to what it asks for: something to say, or one of the chat's own commands. Pure."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from typing import Literal

COMMANDS = {
    "/new": "start a new conversation",
    "/private": "learn nothing from this conversation; again: start a new one that is learned from",
    "/good [TEXT]": "the last answer was good (and why)",
    "/bad TEXT": "the last answer was bad; say what it should have been",
    "/help": "show this",
    "/quit": "leave; so do Ctrl-D and Ctrl-C twice",
}
NAMES = tuple(usage.split()[0] for usage in COMMANDS)


@dataclass(frozen=True, slots=True)
class Say:
    """A message to the model."""

    text: str


@dataclass(frozen=True, slots=True)
class Rate:
    """A word on the last answer."""

    rating: Literal["good", "bad"]
    text: str


@dataclass(frozen=True, slots=True)
class Order:
    """A command that needs no text."""

    name: Literal["new", "private", "help", "quit"]


@dataclass(frozen=True, slots=True)
class Mistake:
    """A command that does not exist, or lacks something; `remedy` is for the person."""

    remedy: str


Line = Say | Rate | Order | Mistake

_ORDERS = {f"/{order.name}": order for order in (Order("new"), Order("private"), Order("help"), Order("quit"))}


def read_line(line: str) -> Line | None:
    """What a line asks for; None if it is empty.

    Only a slash and one word make a command: `/etc/hosts is broken` is something to say.
    """
    text = line.strip()
    if not text:
        return None
    name, _, rest = text.partition(" ")
    if name in _ORDERS:
        return Mistake(f"{name} takes no text") if rest.strip() else _ORDERS[name]
    match name:
        case "/good":
            return Rate("good", rest.strip())
        case "/bad" if rest.strip():
            return Rate("bad", rest.strip())
        case "/bad":
            return Mistake("say what was wrong, or what you wanted instead: /bad TEXT")
    if re.fullmatch(r"/[a-z]+", name):
        near = difflib.get_close_matches(name, NAMES, n=1)
        return Mistake(f"{name} is no command; " + (f"did you mean {near[0]}?" if near else "/help lists them"))
    return Say(text)
