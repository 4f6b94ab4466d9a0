"""README and docs are true: the tree is the disk, links lead somewhere, whatever is named exists."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from pkgutil import resolve_name

import pytest
import typer
import yaml

from openclaw_rl.cli import app as cli
from openclaw_rl.config.keys import LEAVES, SECTIONS
from tests.pages import DOCS, PAGES, README, ROOT, anchors, blocks, num_words, prose, rows, section, spans
from tests.server import Server

PROSE = [page for page in PAGES if page.name not in ("from-the-seeds.md", "configuration.md")]
"""Pages that a person wrote about what is there now; the other two have tests of their own."""

COMMANDS = {
    *(group := typer.main.get_group(cli.app)).commands,
    *(f"{name} {sub}" for name, each in group.commands.items() for sub in getattr(each, "commands", {})),
}
ELSEWHERE = {
    *("config.toml", "file.py", "my_users.py", "my_reward.py", "run/log.jsonl"),
    *("turns.jsonl", "steps.jsonl", "rollouts.jsonl", "pairs.jsonl"),
}
"""Files of other programs, and files that commands write or read."""

LIMITS = [
    (("architecture",), 2500),
    (("benchmarks", "performance"), 2700),
    (("learning",), 1200),
    (("release",), 1200),
]
WORDS = (
    *("turn", "session", "exchange", "placement", "fingerprint", "next state", "feedback", "skip"),
    *("prompt", "bridge", "prefill", "delta", "piece", "completion", "version", "line"),
    *("score", "reward", "advantage", "sample", "batch", "step"),
)


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


def test_a_line_of_the_tree_names_the_rooms_inside() -> None:
    for path, remark in tree().items():
        if path.startswith("openclaw_rl/") and path.endswith("/") and path != "openclaw_rl/":
            rooms = {init.parent.name for init in (ROOT / path).glob("*/__init__.py")}
            assert rooms <= set(re.findall(r"(\w+)/", remark)), f"the README does not name all rooms of {path}"


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
    package = ROOT / "openclaw_rl"
    places = (ROOT, package, package / "gateway", package / "train" / "objective")
    folders = "|".join((*(path.name for path in package.iterdir() if path.is_dir()), "openclaw_rl", "tests", "docs"))
    for name in spans(page):
        if re.fullmatch(rf"[\w-][\w/.-]*\.(py|md|toml|jsonl|txt|yaml)|({folders})(/[\w-]+)*/", name):
            known = name in ELSEWHERE or any((place / name).exists() for place in places)
            assert known, f"{page.name} names {name}, which is not there"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_programs_on_the_page_can_be_read(page: Path) -> None:
    for block in blocks(page, "python"):
        ast.parse(block)
    for block in blocks(page, "yaml"):
        yaml.safe_load(block)
    for block in blocks(page, "json"):
        json.loads(block)


def test_all_pages_together_fit_into_an_evening() -> None:
    assert sum(num_words(page) for page in PROSE if page != README) <= 25_000


@pytest.mark.parametrize(
    ("pages", "most"), LIMITS, ids=lambda value: "+".join(value) if isinstance(value, tuple) else ""
)
def test_a_page_is_no_longer_than_a_person_reads(pages: tuple[str, ...], most: int) -> None:
    assert sum(len((DOCS / f"{page}.md").read_text().split()) for page in pages) <= most, "as `wc -w` counts"


@pytest.mark.parametrize("page", PROSE, ids=lambda page: page.name)
def test_commands_and_targets_that_are_named_exist(page: Path) -> None:
    makefile = (ROOT / "Makefile").read_text()
    for text in [*spans(page), *(line for block in blocks(page) for line in block.splitlines())]:
        for command, sub in re.findall(r"^(?:\$ )?openclaw-rl ([a-z]+)(?: ([a-z-]+))?", text):
            assert {command, f"{command} {sub}"} & COMMANDS, f"{page.name}: there is no command {text!r}"
            if sub and any(name.startswith(f"{command} ") for name in COMMANDS):
                assert f"{command} {sub}" in COMMANDS, f"{page.name}: there is no command {text!r}"
        for target in re.findall(r"^make ([a-z-]+)", text):
            assert re.search(rf"^{target}:", makefile, re.MULTILINE), f"{page.name}: there is no target {text!r}"


@pytest.mark.parametrize("page", PROSE, ids=lambda page: page.name)
def test_settings_that_are_named_exist(page: Path) -> None:
    for text in spans(page):
        key = text.partition("=")[0]
        if key.partition(".")[0] in SECTIONS and re.fullmatch(r"[a-z]+(\.[a-z_]+)+", key) and not key.endswith(".py"):
            assert key in LEAVES or key in SECTIONS or is_ours(key), f"{page.name}: there is no setting {key}"


def test_the_glossary_defines_each_word_once_and_points_at_the_code() -> None:
    table = rows(section(DOCS / "architecture.md", "Glossary"))
    words = [word for entry, _, _ in table for word in entry.split(", ")]
    assert len(words) == len(set(words)), "a word has two entries"
    assert set(WORDS) <= set(words), "a word of ours has no entry"
    for entry, _, place in table:
        assert is_ours(place.strip("`")), f"the glossary places {entry} at {place}: not there"


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
