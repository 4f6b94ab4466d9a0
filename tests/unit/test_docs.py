"""README and docs are true: the tree is the disk, links lead somewhere, whatever is named exists."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from pkgutil import resolve_name

import pytest
import typer

from openclaw_rl import cli
from openclaw_rl.config.keys import LEAVES, SECTIONS
from tests.server import Server

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
ARCHITECTURE = ROOT / "docs" / "architecture.md"
PAGES = [README, *sorted((ROOT / "docs").glob("*.md"))]
PROSE = [
    README,
    ARCHITECTURE,
    ROOT / "docs" / "clients.md",
    ROOT / "docs" / "judging.md",
    ROOT / "docs" / "privacy.md",
    ROOT / "docs" / "tracking.md",
]
"""Pages that speak of what is there now; docs/from-the-seeds.md also names what is to come and has its own test."""

COMMANDS = {
    *(group := typer.main.get_group(cli.app)).commands,
    *(f"{name} {sub}" for name, each in group.commands.items() for sub in getattr(each, "commands", {})),
}
WORDS = (
    *("turn", "session", "exchange", "placement", "fingerprint", "next state", "feedback", "skip"),
    *("prompt", "bridge", "prefill", "delta", "piece", "completion", "version", "line"),
    *("score", "reward", "advantage", "sample", "batch", "step"),
)


def blocks(page: Path, language: str = "") -> list[str]:
    """The fenced blocks of a page in one language."""
    found = re.findall(r"^```(\w*)\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    return [block for name, block in found if name == language]


def prose(page: Path) -> str:
    """A page without its fenced blocks."""
    return re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


def spans(page: Path) -> list[str]:
    """What stands between backquotes in the prose of a page."""
    return re.findall(r"`([^`\n]+)`", prose(page))


def anchors(page: Path) -> set[str]:
    """The names that code hosts give to the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def tree() -> dict[str, str]:
    """Path -> remark, as the README draws its folders."""
    (drawing,) = (block for block in blocks(README) if block.startswith("openclaw_rl/\n"))
    found: dict[str, str] = {}
    folder = ""
    for line in drawing.splitlines():
        indent, name, remark = re.fullmatch(r"( *)(\S+) *(.*)", line).groups()  # type: ignore[union-attr]
        if not indent:
            folder = name
        found[folder + name if indent else name] = remark
    return found


def on_disk() -> set[str]:
    """The folders of the project, and what is in the package and in the tests; folders end in a slash."""
    ignored = [line.rstrip("/") for line in (ROOT / ".gitignore").read_text().split()]

    def entries(folder: Path, *, files: bool) -> Iterator[str]:
        for path in folder.iterdir():
            hidden = path.name.startswith((".", "__")) or any(fnmatch(path.name, pattern) for pattern in ignored)
            if not hidden and (path.is_dir() or (files and path.suffix == ".py")):
                yield f"{path.relative_to(ROOT)}{'/' if path.is_dir() else ''}"

    return {
        *entries(ROOT, files=False),
        *entries(ROOT / "openclaw_rl", files=True),
        *entries(ROOT / "tests", files=False),
    }


def test_the_tree_in_the_readme_is_the_tree_on_disk() -> None:
    assert set(tree()) == on_disk()


def test_every_line_of_the_tree_says_what_is_there() -> None:
    silent = [path for path, remark in tree().items() if not remark]
    assert silent == ["openclaw_rl/", "tests/"], "folders whose parts are listed below them speak through those"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        linked = page.parent / path if path else page
        assert linked.exists(), f"{page.name} links to {target}, which is not there"
        if anchor:
            assert anchor in anchors(linked), f"{page.name} links to {target}; its headings are {anchors(linked)}"


def test_the_readme_links_every_page() -> None:
    linked = {ROOT / target for target in re.findall(r"\]\(([^)#\s]+)\)", prose(README))}
    assert set(PAGES) - {README} <= linked


@pytest.mark.parametrize("page", PROSE, ids=lambda page: page.name)
def test_files_that_are_named_exist(page: Path) -> None:
    places = (ROOT, ROOT / "openclaw_rl", ROOT / "openclaw_rl" / "gateway")
    for name in spans(page):
        if re.fullmatch(r"[\w/.-]+\.(py|md)|(openclaw_rl|tests|docs)(/[\w-]+)*/?", name):
            assert any((place / name).exists() for place in places), f"{page.name} names {name}, which is not there"


@pytest.mark.parametrize("page", PROSE, ids=lambda page: page.name)
def test_commands_and_targets_that_are_named_exist(page: Path) -> None:
    makefile = (ROOT / "Makefile").read_text()
    for text in [*spans(page), *(line for block in blocks(page) for line in block.splitlines())]:
        for command, sub in re.findall(r"^(?:\$ )?openclaw-rl ([a-z]+)(?: ([a-z]+))?", text):
            assert {command, f"{command} {sub}"} & COMMANDS, f"{page.name}: there is no command {text!r}"
            if sub and any(name.startswith(f"{command} ") for name in COMMANDS):
                assert f"{command} {sub}" in COMMANDS, f"{page.name}: there is no command {text!r}"
        for target in re.findall(r"^make ([a-z]+)", text):
            assert re.search(rf"^{target}:", makefile, re.MULTILINE), f"{page.name}: there is no target {text!r}"


@pytest.mark.parametrize("page", PROSE, ids=lambda page: page.name)
def test_settings_that_are_named_exist(page: Path) -> None:
    for text in spans(page):
        key = text.partition("=")[0]
        if key.partition(".")[0] in SECTIONS and re.fullmatch(r"[a-z]+(\.[a-z_]+)+", key) and not key.endswith(".py"):
            assert key in LEAVES or key in SECTIONS or is_ours(key), f"{page.name}: there is no setting {key}"


def test_the_glossary_defines_each_word_once_and_points_at_the_code() -> None:
    table = prose(ARCHITECTURE).partition("| word | means | where |\n|---|---|---|\n")[2]
    rows = [line.strip("| ").split(" | ") for line in table.splitlines()]
    words = [word for entry, _, _ in rows for word in entry.split(", ")]
    assert len(words) == len(set(words)), "a word has two entries"
    assert set(WORDS) <= set(words), "a word of ours has no entry"
    for entry, _, place in rows:
        assert place == "later" or is_ours(place.strip("`")), f"the glossary places {entry} at {place}: not there"


def is_ours(dotted: str) -> bool:
    """Whether `gateway.sessions.Placement` names a module of ours, or something in one."""
    try:
        resolve_name(f"openclaw_rl.{dotted}")
    except (ImportError, AttributeError):
        return False
    return True


def test_the_client_in_the_readme_chats_with_a_running_server(tmp_path: Path) -> None:
    (program,) = blocks(README, "python")
    with Server(tmp_path / "data", 'engine.scripted.replies=[{"match": "gravity", "reply": "It pulls."}]') as server:
        program = program.replace("~/.openclaw-rl", str(server.data_dir)).replace("http://127.0.0.1:30000", server.url)
        result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout, result.stderr) == (0, "It pulls.", "")
