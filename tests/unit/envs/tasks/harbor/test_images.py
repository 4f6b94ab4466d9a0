"""Images as boxes find them: layers and trees, made once and shared."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from openclaw_rl.envs.tasks.harbor.directory import BoxSource
from openclaw_rl.envs.tasks.harbor.images import Image, Images
from openclaw_rl.envs.tasks.harbor.task_toml import EnvironmentTable
from openclaw_rl.errors import TaskError
from tests.fakes.boxes import Boxes


def source(folder: Path, files: dict[str, str], **table: object) -> BoxSource:
    for name, text in {**files, ".keep": ""}.items():
        (folder / "environment" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "environment" / name).write_text(text)
    return BoxSource(table=EnvironmentTable.model_validate(table), folder=folder / "environment")


async def said(boxes: Boxes, image: Image, command: str) -> str:
    box = await boxes.open(layers=image.layers, trees=image.trees, workdir=image.workdir, env=image.env)
    return (await box.run(command, timeout_s=30)).output


async def test_a_dockerfile_is_done_in_a_box_of_its_base(images: Images, boxes: Boxes, tmp_path: Path) -> None:
    dockerfile = """
    FROM small:1
    ENV A=1
    WORKDIR /new/place
    COPY *.txt ./
    RUN cat a.txt b.txt > both && rm /old/file && echo "$A $PWD" > where
    COPY last /old/
    """
    files = {"Dockerfile": dockerfile, "a.txt": "a", "b.txt": "b", "last": "last"}
    image = await images.image(source(tmp_path, files, network_mode="no-network"), on_machine=False, delivered=())
    assert (image.workdir, image.env["A"], image.env["FROM_IMAGE"]) == ("/new/place", "1", "yes")
    assert await said(boxes, image, "pwd; ls; cat both where; ls /old; ls -d /.context") == (
        "/new/place\na.txt\nb.txt\nboth\nwhere\nab1 /new/place\nlast\n"
        "ls: cannot access '/.context': No such file or directory\n"
    )


async def test_recipes_that_begin_alike_share_the_beginning(images: Images, tmp_path: Path) -> None:
    begins = "FROM small:1\nRUN echo once > /begun\n"
    one = await images.image(
        source(tmp_path / "1", {"Dockerfile": f"{begins}RUN true"}), on_machine=False, delivered=()
    )
    two = await images.image(
        source(tmp_path / "2", {"Dockerfile": f"{begins}WORKDIR /x"}), on_machine=False, delivered=()
    )
    again = await images.image(
        source(tmp_path / "3", {"Dockerfile": f"{begins}RUN true"}), on_machine=False, delivered=()
    )
    assert one.layers == again.layers
    assert one.layers[:2] == two.layers[:2]
    assert one.layers[2] != two.layers[2]


async def test_the_same_step_on_another_beginning_is_another(images: Images, boxes: Boxes, tmp_path: Path) -> None:
    found = []
    for word in ("one", "two"):
        dockerfile = f"FROM small:1\nRUN echo {word} > /begun\nRUN cat /begun > /copied"
        plan = source(tmp_path / word, {"Dockerfile": dockerfile}, network_mode="no-network")
        found.append(await said(boxes, await images.image(plan, on_machine=False, delivered=()), "cat /copied"))
    assert found == ["one\n", "two\n"]


async def test_an_image_beside_a_dockerfile_is_what_that_made(images: Images, boxes: Boxes, tmp_path: Path) -> None:
    plan = source(tmp_path, {"Dockerfile": "FROM none\nRUN exit 1", "a.txt": "a"}, docker_image="small:1")
    image = await images.image(plan, on_machine=False, delivered=())
    assert await said(boxes, image, "pwd; ls -A") == "/work\n"


async def test_an_image_alone_gets_the_files_of_the_task(images: Images, boxes: Boxes, tmp_path: Path) -> None:
    plan = source(tmp_path, {"a.txt": "a"}, docker_image="small:1", workdir="/tmp/in/")
    image = await images.image(plan, on_machine=False, delivered=())
    assert await said(boxes, image, "pwd; ls") == "/tmp/in\na.txt\n"


async def test_any_machine_will_do_where_the_author_says_so(images: Images, boxes: Boxes, tmp_path: Path) -> None:
    dockerfile = "FROM none:1\nENV A=1\nWORKDIR /srv/here\nCOPY a.txt ."
    plan = source(tmp_path, {"Dockerfile": dockerfile, "a.txt": "a", "b.txt": "b"}, docker_image="none:2")
    image = await images.image(plan, on_machine=True, delivered=())
    assert (image.layers, image.env["A"]) == ((), "1")
    assert await said(boxes, image, "pwd; ls; ls /logs") == "/srv/here\na.txt\nagent\nartifacts\nverifier\n"


async def test_without_a_word_of_an_image_the_files_lie_in_the_working_directory(
    images: Images, boxes: Boxes, tmp_path: Path
) -> None:
    image = await images.image(source(tmp_path, {"a.txt": "a"}), on_machine=False, delivered=())
    assert await said(boxes, image, "pwd; ls") == "/app\na.txt\n"


async def test_an_image_is_made_anew_when_its_files_change(images: Images, cache: Path, tmp_path: Path) -> None:
    first = await images.image(source(tmp_path, {"a.txt": "a"}), on_machine=False, delivered=())
    assert first == await images.image(source(tmp_path, {"a.txt": "a"}), on_machine=False, delivered=())
    assert first != await images.image(source(tmp_path, {"a.txt": "b"}), on_machine=False, delivered=())
    assert len(os.listdir(cache / "trees")) == 2


@pytest.mark.parametrize(
    ("dockerfile", "why"),
    [
        ("FROM none:1\nWORKDIR /x", "the image none:1 is not here"),
        ("FROM small:1\nVOLUME /x", "VOLUME is not interpreted here"),
        ("FROM small:1\nRUN echo well; exit 3", "ended with code 3: well"),
        ("FROM small:1\nCOPY none /x", "there is no none to copy"),
    ],
)
async def test_what_cannot_be_made_is_told(
    images: Images, cache: Path, tmp_path: Path, dockerfile: str, why: str
) -> None:
    with pytest.raises(TaskError, match=why):
        await images.image(
            source(tmp_path, {"Dockerfile": dockerfile}, network_mode="no-network"), on_machine=False, delivered=()
        )
    assert not (cache / "layers").exists() or not os.listdir(cache / "layers")


async def test_a_build_has_a_time_limit(images: Images, tmp_path: Path) -> None:
    plan = source(tmp_path, {"Dockerfile": "FROM small:1\nRUN read x < /dev/zero & wait"}, build_timeout_sec=0.7)
    with pytest.raises(TaskError, match=r"not (made within 0\.7 s|done in time)"):
        await images.image(plan, on_machine=False, delivered=())
