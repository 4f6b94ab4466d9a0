"""What of an agent's work comes into the grader's box, and what a grader would trip over."""

from __future__ import annotations

from pathlib import Path

import pytest

from openclaw_rl.envs.tasks.harbor.carrying import _is_unwanted, _leave_out, _link, _outermost, carry, deliver
from openclaw_rl.envs.tasks.harbor.images import Image
from openclaw_rl.errors import EnvError, TaskError
from tests.fakes.boxes import Boxes

FILE, FOLDER, LINK = 0o100644, 0o040755, 0o120777


@pytest.mark.parametrize(
    ("path", "kind", "is_unwanted"),
    [
        ("app", FOLDER, False),
        ("app", LINK, True),
        ("app.txt", FILE, True),
        ("usr", FOLDER, True),
        ("app/usr", FOLDER, False),
        ("tests", FOLDER, True),
        ("app/tests", FOLDER, False),
        ("solution", FOLDER, True),
        ("logs/verifier", FOLDER, True),
        ("logs/agent", FOLDER, False),
        ("root/.bashrc", FILE, True),
        ("root/notes", FILE, False),
        ("home/me/.config", FOLDER, True),
        ("home/.x", FOLDER, False),
        ("app/.git", FOLDER, False),
        ("app/conftest.py", FILE, True),
        ("app/a/__pycache__", FOLDER, True),
        ("app/x.pth", FILE, True),
        ("app/sitecustomize.py", FILE, True),
        ("app/setup.cfg", FILE, False),
    ],
)
def test_what_a_grader_would_trip_over_is_not_carried(path: str, kind: int, is_unwanted: bool) -> None:
    assert _is_unwanted(tuple(path.split("/")), kind) == is_unwanted


def test_what_lies_in_another_is_delivered_with_it() -> None:
    assert _outermost(["/logs/artifacts", "/app", "/app/out", "/application", "/logs/verifier/x"]) == [
        "/logs/artifacts",
        "/app",
        "/application",
    ]


@pytest.mark.parametrize(
    ("patterns", "left"),
    [
        ((), {"a.log", "b.txt", "deep", "deep/a.log", "deep/c", "deep/c/d"}),
        (("*.log",), {"b.txt", "deep", "deep/c", "deep/c/d"}),
        (("./deep/",), {"a.log", "b.txt"}),
        (("c/d",), {"a.log", "b.txt", "deep", "deep/a.log", "deep/c"}),
        (("deep/*",), {"a.log", "b.txt", "deep"}),
        (("eep",), {"a.log", "b.txt", "deep", "deep/a.log", "deep/c", "deep/c/d"}),
    ],
)
def test_patterns_leave_out_what_those_of_tar_do(tmp_path: Path, patterns: tuple[str, ...], left: set[str]) -> None:
    (tmp_path / "deep" / "c").mkdir(parents=True)
    for name in ("a.log", "b.txt", "deep/a.log", "deep/c/d"):
        (tmp_path / name).touch()
    _leave_out(tmp_path, patterns)
    assert {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")} == left


@pytest.fixture
def machine(tmp_path: Path) -> Image:
    tree = tmp_path / "app"
    tree.mkdir()
    (tree / "conftest.py").write_text("of the task\n")
    (tree / "work.txt").write_text("todo\n")
    return Image(trees={"/app": tree}, workdir="/app")


async def test_links_and_deletions_are_carried_and_start_files_are_the_tasks(
    boxes: Boxes, machine: Image, tmp_path: Path
) -> None:
    box = await boxes.open(trees=machine.trees, workdir="/app")
    await box.shell(
        "rm work.txt; echo mine > conftest.py; ln -s /usr/bin/env tool; ln -s nowhere 'a link'; "
        "mkdir d; ln -s .. d/up; echo x > d/conftest.py; touch d/kept",
        timeout_s=30,
    )
    carried = await carry(box, machine, tmp_path / "to", delivered=(), max_bytes=1 << 20)
    app = carried.image.trees["/app"]
    assert (app / "tool").readlink() == Path("/usr/bin/env")
    assert (app / "a link").readlink() == Path("nowhere")
    assert (app / "d/up").readlink() == Path("..")
    assert (app / "conftest.py").read_text() == "of the task\n"
    assert sorted(path.name for path in (app / "d").iterdir()) == ["kept", "up"]
    assert not (app / "work.txt").exists()
    assert (machine.trees["/app"] / "work.txt").exists()


async def test_a_folder_that_became_a_link_is_not_followed(boxes: Boxes, tmp_path: Path) -> None:
    tree = tmp_path / "app"
    (tree / "inner").mkdir(parents=True)
    (tree / "inner" / "conftest.py").write_text("of the task\n")
    outside = tmp_path / "outside"
    outside.mkdir()
    image = Image(trees={"/app": tree}, workdir="/app")
    box = await boxes.open(trees=image.trees, workdir="/app")
    await box.shell(f"rm -r inner; ln -s {outside} inner", timeout_s=30)
    carried = await carry(box, image, tmp_path / "to", delivered=(), max_bytes=1 << 20)
    assert (carried.image.trees["/app"] / "inner").is_symlink()
    assert list(outside.iterdir()) == []


def test_a_link_is_not_made_through_another(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (tmp_path / "app").mkdir()
    _link(tmp_path / "app", "/app", ["/app/a", str(outside), "/app/a/b", "/etc", "/app/none/c", "x", "/app/d", "a"])
    assert sorted(path.name for path in (tmp_path / "app").iterdir()) == ["a", "d"]
    assert list(outside.iterdir()) == []


async def test_a_delivered_file_is_not_written_through_a_link_of_the_task(boxes: Boxes, tmp_path: Path) -> None:
    tree, outside = tmp_path / "app", tmp_path / "outside"
    tree.mkdir()
    outside.mkdir()
    (tree / "out").symlink_to(outside)
    image = Image(trees={"/app": tree}, workdir="/app")
    box = await boxes.open(trees=image.trees, workdir="/app")
    await box.shell(f"mkdir -p {outside}; echo x > out/key", timeout_s=30)
    (tmp_path / "to").mkdir()
    with pytest.raises(TaskError, match="the folder out would come where a link"):
        await deliver(box, image, tmp_path / "to", delivered={"/app/out/key": ()}, max_bytes=1 << 20)
    assert list(outside.iterdir()) == []


async def test_what_is_too_much_is_not_carried(boxes: Boxes, machine: Image, tmp_path: Path) -> None:
    box = await boxes.open(trees=machine.trees, workdir="/app")
    await box.shell("truncate -s 2M big", timeout_s=30)
    with pytest.raises(TaskError, match="larger than 1048576 bytes"):
        await carry(box, machine, tmp_path / "to", delivered=(), max_bytes=1 << 20)


async def test_more_links_than_can_be_told_are_a_failure(boxes: Boxes, machine: Image, tmp_path: Path) -> None:
    box = await boxes.open(trees=machine.trees, workdir="/app")
    long = "x" * 200
    await box.shell(f"for i in $(seq 1500); do ln -s /{long} $i; done", timeout_s=60)
    with pytest.raises(EnvError, match="the links in /app cannot be told"):
        await carry(box, machine, tmp_path / "to", delivered=(), max_bytes=1 << 20)
