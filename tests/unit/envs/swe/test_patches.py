"""What an agent changed: its own work is carried, what decides about it is tampering, the rest stays behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from openclaw_rl.envs.swe.patches import FileChange, Rules, diff_of, sort_changes

RULES = Rules(
    tests=frozenset({"checks/words.py"}),
    solution=frozenset({"tests/data.txt"}),
    taken=frozenset({"json", "pytest"}),
    roots=(".", "src"),
)


def change(path: str, before: bytes | None = b"old\n", after: bytes | None = b"new\n") -> FileChange:
    return FileChange(path=path, before=before, after=after)


@pytest.mark.parametrize(
    ("path", "fate"),
    [
        ("pocket/words.py", "carried"),
        ("tests/data.txt", "carried"),
        ("tests/test_words.py", "tampering"),
        ("checks/words.py", "tampering"),
        ("pocket/words_test.py", "tampering"),
        ("conftest.py", "tampering"),
        ("pocket/conftest.py", "tampering"),
        ("pytest.ini", "tampering"),
        ("sitecustomize.py", "tampering"),
        ("src/more.pth", "tampering"),
        ("pocket/__pycache__/words.pyc", "left out"),
        ("pocket.egg-info/PKG-INFO", "left out"),
        ("odd\nname.py", "left out"),
    ],
)
def test_what_becomes_of_a_changed_file(path: str, fate: str) -> None:
    assert RULES.fate(change(path)) == fate


@pytest.mark.parametrize(
    ("path", "fate"),
    [
        ("pocket/more.py", "carried"),
        ("tests/test_more.py", "left out"),
        ("json.py", "tampering"),
        ("src/pytest/__init__.py", "tampering"),
        ("pocket/json.py", "carried"),
        ("conftest.py", "tampering"),
    ],
)
def test_what_becomes_of_a_new_file(path: str, fate: str) -> None:
    assert RULES.fate(change(path, before=None)) == fate


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("pyproject.toml", '[tool.pytest.ini_options]\naddopts = "-p no:x"\n'),
        ("tox.ini", "[pytest]\naddopts = -x\n"),
        ("setup.cfg", "[tool:pytest]\naddopts = -x\n"),
        ("pyproject.toml", "no TOML ["),
    ],
)
def test_settings_of_the_test_run_are_not_the_agents(name: str, text: str) -> None:
    assert RULES.fate(change(name, b"", text.encode())) == "tampering"
    assert RULES.fate(change(name, b"", b"[other]\nkey = 1\n")) == "left out"


def test_a_tree_is_compared_with_the_one_that_the_agent_got(tmp_path: Path) -> None:
    before, after = tmp_path / "before", tmp_path / "after"
    for tree, text in ((before, "a\n"), (after, "b\n")):
        (tree / "pocket").mkdir(parents=True)
        (tree / "pocket" / "words.py").write_text(text)
    (before / "pocket" / "gone.py").write_text("x = 1\n")
    (after / ".git").mkdir()
    (after / ".git" / "config").write_text("[core]\n")
    (after / "out").symlink_to("/etc/passwd")
    (after / "tests").mkdir()
    (after / "tests" / "test_mine.py").write_text("def test(): ...\n")
    work = sort_changes(before, after, RULES)
    assert [(one.path, one.after) for one in work.carried] == [("pocket/gone.py", None), ("pocket/words.py", b"b\n")]
    assert (work.left_out, work.tampering) == (("tests/test_mine.py", "out"), ())
    assert "-a\n+b\n" in work.diff()
    assert "deleted file mode 100644" in work.diff()


def test_a_change_reads_as_git_writes_it() -> None:
    assert diff_of(change("a.py", b"x\n", b"y")) == (
        "diff --git a/a.py b/a.py\n--- a/a.py\n+++ b/a.py\n@@ -1 +1 @@\n-x\n+y\n\\ No newline at end of file\n"
    )
    assert diff_of(change("a.bin", b"\xff", None)).endswith("Binary files a/a.bin and /dev/null differ\n")
    assert diff_of(change("new.py", None, b"")).startswith("diff --git a/new.py b/new.py\nnew file mode 100644\n")
