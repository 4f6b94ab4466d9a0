"""Which files COPY means, and where they come to on this machine's programs."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from openclaw_rl.envs.tasks.harbor.placing import copy_command, digest_of, found_sources, place_on_machine
from openclaw_rl.envs.tasks.harbor.recipe import Copy, MakeFolder, Recipe, Run, Step
from openclaw_rl.errors import TaskError


@pytest.fixture
def context(tmp_path: Path) -> Path:
    here = tmp_path / "context"
    for name in ("a.txt", "b.txt", ".c.txt", "src/x.py", "src/deep/y.py"):
        (here / name).parent.mkdir(parents=True, exist_ok=True)
        (here / name).write_text(name)
    (here / "a.txt").chmod(0o750)
    return here


def copy(*sources: str, to: str = "/app/", unpacks: bool = False) -> Copy:
    return Copy(sources=sources, to=to, unpacks=unpacks, line=3)


def test_patterns_name_files_as_docker_reads_them(context: Path) -> None:
    assert found_sources(copy("*.txt"), context) == ["./.c.txt", "./a.txt", "./b.txt"]
    assert found_sources(copy("src/*.py", "?.txt"), context) == ["./src/x.py", "./a.txt", "./b.txt"]
    assert found_sources(copy("."), context) == ["."]


@pytest.mark.parametrize(
    ("one", "why"),
    [
        (copy("none"), "line 3 of the Dockerfile: there is no none to copy"),
        (copy("a.txt/x"), "there is no a.txt/x to copy"),
        (copy("*.txt", to="/x"), "several files go into a folder"),
        (copy("[ab].txt"), "a pattern of COPY that is not interpreted"),
    ],
)
def test_what_is_not_there_is_told(context: Path, one: Copy, why: str) -> None:
    with pytest.raises(TaskError) as caught:
        found_sources(one, context)
    assert why in str(caught.value)


def test_links_archives_and_ignored_files_are_refused(context: Path) -> None:
    (context / "link").symlink_to("/etc")
    with pytest.raises(TaskError, match="which is a link"):
        found_sources(copy("link/passwd"), context)
    (context / "x.gz").write_bytes(b"\x1f\x8b more")
    (context / "x.tar").write_bytes(bytes(257) + b"ustar")
    for name in ("x.gz", "x.tar"):
        assert found_sources(copy(name), context) == [f"./{name}"]
        with pytest.raises(TaskError, match=f"ADD would unpack ./{name}"):
            found_sources(copy(name, unpacks=True), context)
    (context / ".dockerignore").write_text("*")
    with pytest.raises(TaskError, match="beside a .dockerignore"):
        found_sources(copy("a.txt"), context)


def place(context: Path, *steps: Step, delivered: tuple[str, ...] = (), workdir: str = "/app") -> Path:
    to = context.with_name("made")
    to.mkdir()
    place_on_machine(Recipe(steps=steps, env={}, workdir=workdir), context, to, delivered)
    return to


def test_files_come_where_copy_says(context: Path) -> None:
    made = place(
        context,
        copy("a.txt", to="/app/new.txt"),
        MakeFolder(path="/srv/here"),
        copy("b.txt", to="/srv/here"),
        copy("src", to="/srv/code/"),
    )
    assert sorted(str(path.relative_to(made)) for path in made.rglob("*") if path.is_file()) == [
        "app/new.txt",
        "srv/code/deep/y.py",
        "srv/code/x.py",
        "srv/here/b.txt",
    ]
    assert (made / "app/new.txt").stat().st_mode & 0o777 == 0o750
    assert all((made / "logs" / name).is_dir() for name in ("agent", "artifacts", "verifier"))


def test_folders_of_what_is_delivered_are_there(context: Path) -> None:
    made = place(context, delivered=("/srv/out/x.txt", "deep/y.txt", "/results"))
    assert (made / "results").is_dir()
    assert (made / "srv/out").is_dir()
    assert (made / "app/deep").is_dir()
    assert not (made / "deep").exists()


def test_a_file_in_the_root_cannot_be_delivered(context: Path) -> None:
    with pytest.raises(TaskError, match="belongs to this machine's programs"):
        place(context, delivered=("/results.txt",))


@pytest.mark.parametrize("to", ["/usr/local/bin/", "/etc/x", "/", "/lib64/x"])
def test_the_machines_own_folders_are_not_covered(context: Path, to: str) -> None:
    with pytest.raises(TaskError, match="belongs to this machine's programs"):
        place(context, copy("a.txt", to=to))


def test_a_command_needs_an_image(context: Path) -> None:
    with pytest.raises(TaskError, match="RUN needs an image of the task's own"):
        place(context, Run(command="true", workdir="/", env={}))


def test_copies_do_not_lead_through_links_of_the_task(context: Path) -> None:
    (context / "src" / "out").symlink_to("/tmp")
    with pytest.raises(TaskError, match="leads through out, which is no folder"):
        place(context, copy("src", to="/app/"), copy("a.txt", to="/app/out/"))


@pytest.mark.parametrize("second", ["folder/link/x", "folder/link"])
def test_what_was_copied_is_not_written_through(context: Path, tmp_path: Path, second: str) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_text("mine")
    (context / "first").mkdir()
    (context / "first" / "link").symlink_to(outside if second.endswith("x") else outside / "file")
    (context / second).parent.mkdir(parents=True)
    (context / second).write_text("theirs")
    for how in (copy("folder"), copy("folder/link" if second.endswith("link") else "folder")):
        with pytest.raises(TaskError, match="would come where a link or f"):
            place(context, copy("first"), how)
        shutil.rmtree(context.with_name("made"))
    assert [path.read_text() for path in outside.iterdir()] == ["mine"]


def test_a_box_in_which_an_image_is_made_copies_the_same(context: Path) -> None:
    assert copy_command(copy("a.txt", to="/x y"), context) == (
        "mkdir -p -- / && to='/x y' && if [ -d '/x y' ]; then to='/x y'/a.txt; fi && "
        'rm -f -- "$to" && (umask 0; cp -- /.context/./a.txt "$to")'
    )


def test_a_digest_knows_names_modes_contents_and_links(context: Path) -> None:
    seen = {digest_of(context, ["."])}
    (context / "a.txt").chmod(0o755)
    seen.add(digest_of(context, ["."]))
    (context / "src/x.py").write_text("other")
    seen.add(digest_of(context, ["."]))
    (context / "src/x.py").rename(context / "src/z.py")
    seen.add(digest_of(context, ["."]))
    (context / "l").symlink_to("a.txt")
    seen.add(digest_of(context, ["."]))
    (context / "l").unlink()
    (context / "l").symlink_to("b.txt")
    seen.add(digest_of(context, ["."]))
    assert len(seen) == 6
    assert digest_of(context, ["src"]) == digest_of(context, ["src"])
