"""README and docs, taken apart for the tests that compare them with the code."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
README = ROOT / "README.md"
PAGES = [README, *sorted(DOCS.glob("*.md"))]


def text(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def blocks(page: Path, language: str = "") -> list[str]:
    """The fenced blocks of a page in one language."""
    found = re.findall(r"^```(\w*)\n(.*?)^```$", text(page), re.MULTILINE | re.DOTALL)
    return [block for name, block in found if name == language]


def prose(page: Path) -> str:
    """A page without its fenced and its indented blocks."""
    fenced = re.sub(r"^```.*?^```", "", text(page), flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"^ {4}.*$", "", fenced, flags=re.MULTILINE)


def spans(page: Path) -> list[str]:
    """What stands between backquotes in the prose of a page."""
    return re.findall(r"`([^`\n]+)`", prose(page))


def anchors(page: Path) -> set[str]:
    """The names that code hosts give to the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def section(page: Path, title: str) -> str:
    """What stands below a heading, up to the next one of its rank."""
    found = text(page).partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    assert found, f"{page.name} has no section {title!r}"
    return found


def rows(table: str) -> list[list[str]]:
    """The cells of each row of the tables in a text, without heads and rules."""
    found = []
    lines = table.splitlines()
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        if line.startswith("|") and not re.fullmatch(r"[|: -]+", line) and not re.fullmatch(r"\|[|: -]+", following):
            found.append([cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip("| "))])
    return found


def named(cell: str) -> list[str]:
    """The names between backquotes in a cell."""
    return re.findall(r"`([^`]+)`", cell)


def num_words(page: Path) -> int:
    """Words and numbers; the rules of tables and the signs of drawings are none."""
    return sum(1 for word in text(page).split() if re.search(r"\w", word))
