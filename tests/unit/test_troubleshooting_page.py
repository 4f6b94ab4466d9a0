"""docs/troubleshooting.md is true: what it tells people to look for, and to do about it, is in the code.

`test_docs.py` looks at commands and settings of every page; here are the words that a person sees.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from importlib.util import find_spec

import pytest

from openclaw_rl.config.keys import LEAVES, SECTIONS
from tests.pages import DOCS, ROOT, named, rows, text

PAGE = DOCS / "troubleshooting.md"
_HOLE = "\0"
_VARIES = re.compile(r"(?<![\w-])[A-Z]+(?::[A-Z]+)?(?![\w-])|…")
"""What stands for a value in the words of the page: DIR, HOST:PORT, N."""


@cache
def strings() -> frozenset[str]:
    """Every text that the package writes, docstrings apart; what is filled in is a hole."""
    found: set[str] = set()
    for path in (ROOT / "openclaw_rl").rglob("*.py"):
        nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
        remarks = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
        for node in nodes:
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in remarks:
                found.add(node.value)
            elif isinstance(node, ast.JoinedStr):
                parts = (str(part.value) if isinstance(part, ast.Constant) else _HOLE for part in node.values)
                found.add("".join(parts))
    return frozenset(found)


def is_said(words: str) -> bool:
    """Whether the package says this somewhere, with values where the page has capital letters."""
    parts = [re.escape(part) for part in _VARIES.split(words)]
    pattern = re.compile(rf"[^{_HOLE}]*{_HOLE}[^{_HOLE}]*".join(parts), re.IGNORECASE)
    return any(pattern.search(one) for one in strings())


def is_command(words: str) -> bool:
    return words.startswith(("openclaw-rl ", "make ", "chmod "))


CELLS = [cell for row in rows(text(PAGE)) for cell in row]
QUOTED = sorted({words for cell in CELLS for words in re.findall(r'"([^"`]+)"', cell)})
SPANS = sorted({words for cell in CELLS for words in named(cell) if not is_command(words)})


def test_the_page_quotes_the_package() -> None:
    assert len(SPANS) > 30
    assert not is_said("process N already reads DIR"), "the test tells what is said from what is not"


@pytest.mark.parametrize("words", [*QUOTED, *SPANS])
def test_what_the_page_names_is_there(words: str) -> None:
    if words.startswith("python -m "):
        assert find_spec(words.split()[2])
        return
    key = words.partition("=")[0].removesuffix(".*")
    assert key in LEAVES or key in SECTIONS or is_said(words), f"nothing says {words!r}"
