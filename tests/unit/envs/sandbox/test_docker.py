"""Boxes of Docker, by a program that stands in for it (`tests/fakes/docker.py`). No engine has run them yet."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import pytest_asyncio

from openclaw_rl.envs.sandbox.box import GATEWAY_IN_THE_BOX, Box, BoxLimits, BoxSpec
from openclaw_rl.envs.sandbox.docker import DockerBox, DockerSandbox
from openclaw_rl.envs.sandbox.making import EitherSandbox, make_sandbox
from openclaw_rl.errors import EnvError, TaskError
from openclaw_rl.types import Ran
from tests.fakes.boxes import sandbox_or_skip
from tests.fakes.engines import stand_in

ROOT = Path(__file__).parents[4]


class Engine:
    """The stand-in's state, and the boxes that were opened."""

    def __init__(self, state: Path) -> None:
        self.state = state
        self.opened: list[DockerBox] = []

    async def open(self, **spec: Any) -> DockerBox:
        box = await DockerSandbox().start(BoxSpec(**{"image": "plain", **spec}))
        self.opened.append(box)
        return box

    @property
    def containers(self) -> list[str]:
        return sorted(label.parent.name for label in self.state.glob("*/label"))

    def asked(self, verb: str) -> list[list[str]]:
        lines = map(json.loads, (self.state / "log").read_text().splitlines())
        return [line for line in lines if line[0] == verb]


class LackingSandbox:
    """Of a machine on which bubblewrap makes no box."""

    name = "lacking"

    def lacks(self) -> str:
        return "there is none; remedy: get it"

    async def start(self, spec: BoxSpec) -> Box:
        raise AssertionError(f"nobody asks for a box of {spec}")


@pytest_asyncio.fixture
async def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Engine]:
    sandbox_or_skip(tmp_path / "scratch")
    state = stand_in(tmp_path, monkeypatch)
    made = Engine(state)
    yield made
    for box in made.opened:
        await box.close()
    end = time.monotonic() + 20
    while made.containers:
        assert time.monotonic() < end, made.containers
        await asyncio.sleep(0.02)


async def test_commands_and_the_shell_that_lasts(engine: Engine) -> None:
    box = await engine.open(workdir="/work/deep", env={"TASK": "count"}, limits=BoxLimits(output_bytes=1000))
    ran = await box.run('pwd; echo "$TASK $MORE"; cat', timeout_s=30, env={"MORE": "yes"}, stdin=b"given")
    assert ran == Ran(exit_code=0, output="/work/deep\ncount yes\ngiven")
    assert (await box.run("exit 7", timeout_s=30)).exit_code == 7
    assert (await box.run("kill -9 $$", timeout_s=30)).exit_code == 137
    assert (await box.shell("cd /tmp; X=1", timeout_s=30)).exit_code == 0
    assert await box.shell("pwd; echo $X; false", timeout_s=30) == Ran(exit_code=1, output="/tmp\n1\n")
    ran = await box.run("head -c 3000000 /dev/zero | tr '\\0' x", timeout_s=30)
    assert (ran.exit_code, ran.output, ran.is_cut) == (0, "x" * 1000, True)


async def test_what_takes_too_long_is_ended_in_the_container_too(engine: Engine) -> None:
    box = await engine.open()
    for call in (box.run, box.shell):
        ran = await call("echo first; trap '' TERM; sleep 1000 & sleep 1000", timeout_s=2.0)
        assert ran == Ran(exit_code=None, output="first\n")
        assert (await box.run("pgrep -r D,R,S sleep || echo none", timeout_s=30)).output == "none\n"
    task = asyncio.create_task(box.run("touch /tmp/begun; sleep 1000", timeout_s=60))
    await box.run("until [ -e /tmp/begun ]; do sleep 0.02; done", timeout_s=30)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await box.run("pgrep -r D,R,S sleep || echo none", timeout_s=30)).output == "none\n"


async def test_files_go_in_and_come_out(engine: Engine, tmp_path: Path) -> None:
    box = await engine.open()
    data = bytes(range(256)) * 1000
    await box.write("/new/folder/tool", data, mode=0o750)
    assert await box.read("/new/folder/tool", max_bytes=len(data)) == data
    assert (await box.run("stat -c '%a %s' /new/folder/tool", timeout_s=30)).output == "750 256000\n"
    with pytest.raises(TaskError, match="256000 bytes"):
        await box.read("/new/folder/tool", max_bytes=1000)
    await box.run("mkfifo /fifo; ln -s /etc/none /link; ln -s /new/folder/tool /good", timeout_s=30)
    for path in ("/none", "/new", "/fifo", "/link", "/dev/null"):
        assert await box.read(path, max_bytes=100) is None
    assert await box.read("/good", max_bytes=len(data)) == data
    for path in ("/fifo", "/new", "/usr/x"):
        with pytest.raises(TaskError, match="cannot be written"):
            await box.write(path, b"x")
    with pytest.raises(TaskError, match="absolute"):
        await box.read("relative", max_bytes=1)
    await box.copy_out("/new/folder/tool", tmp_path / "file", max_bytes=1 << 20)
    assert (tmp_path / "file").read_bytes() == data


async def test_a_tree_is_copied_out_without_what_could_harm(engine: Engine, tmp_path: Path) -> None:
    box = await engine.open()
    make = "mkdir -p /w/a/b; cd /w; echo one >a/one; ln a/one a/two; mkfifo a/fifo; chmod 4755 a/one"
    await box.run(f"{make}; ln -s a/one in; ln -s /etc/passwd out; ln -s ../../x up", timeout_s=30)
    await box.copy_out("/w", tmp_path / "copy", max_bytes=1 << 20)
    found = {str(path.relative_to(tmp_path / "copy")) for path in (tmp_path / "copy").rglob("*")}
    assert found == {"a", "a/b", "a/one", "a/two", "in"}
    assert (tmp_path / "copy" / "a" / "two").read_text() == "one\n"
    assert oct((tmp_path / "copy" / "a" / "one").stat().st_mode & 0o7777) == "0o755"
    for path, why in (("/none", "cannot be copied"), ("/dev/null", "neither a file nor"), ("/w", "larger than 1000")):
        with pytest.raises(TaskError, match=why):
            await box.copy_out(path, tmp_path / "none", max_bytes=1000)
        assert not (tmp_path / "none").exists()
    await box.run(f"mkdir -p /deep/{'d/' * 300}", timeout_s=30)
    with pytest.raises(TaskError, match="more than 256 others"):
        await box.copy_out("/deep", tmp_path / "none", max_bytes=1 << 20)


async def test_trees_are_copies_and_read_only_folders_are_not(engine: Engine, tmp_path: Path) -> None:
    tree, shown = tmp_path / "tree", tmp_path / "shown"
    for folder in (tree, shown):
        folder.mkdir()
        (folder / "file").write_text("mine")
    box = await engine.open(trees={"/app/x": tree}, read_only={"/opt/shown": shown})
    assert (await box.run("cat /app/x/file /opt/shown/file", timeout_s=30)).output == "minemine"
    assert (await box.run("echo theirs >/app/x/file", timeout_s=30)).exit_code == 0
    assert (await box.run("echo theirs >/opt/shown/file", timeout_s=30)).exit_code != 0
    assert (tree / "file").read_text() == (shown / "file").read_text() == "mine"


async def test_a_layer_is_an_image(engine: Engine, tmp_path: Path) -> None:
    first = await engine.open()
    await first.run("echo added >/work/new", timeout_s=30)
    await first.keep_layer(tmp_path / "layer")
    second = await engine.open(image="", layers=(tmp_path / "layer",))
    assert (await second.run("cat /work/new", timeout_s=30)).output == "added\n"
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "layer").write_text("plain")  # as an agent could, who writes what is in a folder
    with pytest.raises(TaskError, match="no layer of Docker's"):
        await engine.open(image="", layers=(tmp_path / "files",))


async def test_what_the_engine_is_asked_for(engine: Engine) -> None:
    await engine.open(limits=BoxLimits(memory_mb=100, processes=20, disk_mb=3))
    await engine.open(network="full")
    plain, full = engine.asked("run")
    told = " ".join(plain)
    for option in (
        *("--network none", "--memory 100m --memory-swap 100m", "--pids-limit 20", "--ulimit fsize=3145728", "--rm"),
        *("--cap-drop ALL", "--security-opt no-new-privileges", "--init", "--pull never"),
    ):
        assert option in told
    assert "SYS_ADMIN" not in told
    assert "--privileged" not in told
    assert "--network bridge" in " ".join(full)


async def test_a_closed_box_is_gone_and_says_so(engine: Engine) -> None:
    box = await engine.open()
    running = asyncio.create_task(box.run("touch /tmp/begun; sleep 1000", timeout_s=60))
    await box.run("until [ -e /tmp/begun ]; do sleep 0.02; done", timeout_s=30)
    await asyncio.gather(box.close(), box.close())
    with pytest.raises(EnvError, match="closed|gone"):
        await running
    for call in (box.run("true", timeout_s=9), box.shell("true", timeout_s=9), box.read("/x", max_bytes=1)):
        with pytest.raises(EnvError, match="closed"):
            await call


async def test_a_box_whose_maker_is_killed_ends(engine: Engine) -> None:
    code = (
        "import asyncio; from openclaw_rl.envs.sandbox.box import BoxSpec; "
        "from openclaw_rl.envs.sandbox.docker import DockerSandbox\n"
        "async def main():\n await DockerSandbox().start(BoxSpec(image='plain'))\n print('up', flush=True)\n"
        " await asyncio.sleep(1000)\nasyncio.run(main())"
    )
    maker = await asyncio.create_subprocess_exec(sys.executable, "-c", code, cwd=ROOT, stdout=subprocess.PIPE)
    assert maker.stdout is not None
    assert await maker.stdout.readline() == b"up\n"
    assert len(engine.containers) == 1
    maker.kill()
    await maker.wait()


async def test_what_makers_left_behind_is_removed(engine: Engine) -> None:
    ended = await asyncio.create_subprocess_exec("true")
    await ended.wait()
    host = socket.gethostname()
    makers = {"gone": f"{host}:{ended.pid}", "here": f"{host}:{os.getpid()}", "elsewhere": f"another:{ended.pid}"}
    for name, maker in makers.items():
        (engine.state / name).mkdir()
        (engine.state / name / "label").write_text(f"openclaw-rl.maker={maker}")
    assert DockerSandbox().lacks() == ""
    assert engine.containers == ["elsewhere", "here"]
    for name in engine.containers:
        shutil.rmtree(engine.state / name)


async def test_what_no_box_can_be_is_refused(engine: Engine) -> None:
    for spec, why in (
        ({"image": "none:1"}, "none:1 cannot be fetched: .*manifest"),
        ({"image": "--privileged"}, "made of an image"),
        ({"read_only": {"/opt": Path("/nonesuch")}}, "is not there"),
        ({"image": "", "gateway": "ftp://there"}, "a box's gateway is http://HOST:PORT"),
        ({"read_only": {"/a,b": Path("/usr")}}, "comma"),
        ({"trees": {"/app": Path("/nonesuch")}}, "no folder"),
    ):
        with pytest.raises(TaskError, match=why):
            await engine.open(**spec)
    assert engine.containers == []


async def test_where_no_engine_answers_the_reason_says_so(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (engine.state / "engine-is-down").touch()
    assert "no Docker engine answers: Cannot connect" in DockerSandbox().lacks()
    with pytest.raises(EnvError, match="no Docker engine answers"):
        await engine.open()
    either = make_sandbox(tmp_path / "scratch")
    with pytest.raises(TaskError, match="'plain' needs Docker: no Docker engine answers"):
        await either.start(BoxSpec(image="plain"))
    monkeypatch.setenv("PATH", "/nonexistent")
    assert "Docker is not installed" in DockerSandbox().lacks()


async def test_images_go_to_docker_and_all_else_to_bubblewrap(engine: Engine, tmp_path: Path) -> None:
    either = make_sandbox(tmp_path / "scratch")
    assert isinstance(either, EitherSandbox)
    assert (either.name, either.lacks()) == ("bubblewrap", "")
    plain = await either.start(BoxSpec())
    image = await either.start(BoxSpec(image="plain"))
    assert not isinstance(plain, DockerBox)
    assert isinstance(image, DockerBox)
    await image.keep_layer(tmp_path / "layer")
    layered = await either.start(BoxSpec(layers=(tmp_path / "layer",)))
    assert isinstance(layered, DockerBox)
    for box in (plain, image, layered):
        await box.close()


async def test_a_box_of_this_machines_programs(engine: Engine, tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "file").write_text("mine")
    box = await engine.open(image="", trees={"/app": tmp_path / "tree"}, workdir="/app")
    ran = await box.run("cat file; git --version; ls -d /root /tmp; head -1 /etc/passwd; ls /work", timeout_s=30)
    assert re.fullmatch(r"minegit version .*\n/root\n/tmp\nroot:x:0:0:root:/root:/bin/bash\n", ran.output)
    for shown in ("/usr/new", "/bin/new"):
        assert (await box.run(f"touch {shown}", timeout_s=30)).exit_code != 0
    assert "source=/usr,target=/usr,readonly" in " ".join(engine.asked("run")[0])
    await engine.open(image="")
    (made,) = engine.asked("import")
    assert made[:2] == ["import", "-"], "once for all boxes"


@pytest.mark.parametrize("network", ["none", "full"])
async def test_programs_in_a_box_reach_the_gateway_and_nothing_else_of_ours(engine: Engine, network: str) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked = await reader.readline()
        writer.write(asked.upper() * 50_000)
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    box = await engine.open(image="", gateway=f"http://127.0.0.1:{port}", network=network)
    place = urlsplit(GATEWAY_IN_THE_BOX)
    ask = f"exec 3<>/dev/tcp/{place.hostname}/{place.port}; echo hello >&3; cat <&3 | sort -u; "
    for _ in range(2):
        assert await box.run(f"{ask}", timeout_s=30) == Ran(exit_code=0, output="HELLO\n")
    assert (await box.run(f"exec 3<>/dev/tcp/127.0.0.1/{port}", timeout_s=30)).exit_code != 0
    assert (await box.run("ls /run/openclaw-rl", timeout_s=30)).exit_code != 0
    await box.close()
    server.close()
    _, door = engine.asked("run")
    assert f"--network container:{box.container}" in " ".join(door)
    assert not {"--hostname", "--cap-add"}.intersection(door)


async def test_without_bubblewrap_docker_makes_all_boxes(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    either = EitherSandbox(LackingSandbox(), DockerSandbox())
    assert either.lacks() == ""
    assert either.name == "docker"
    box = await either.start(BoxSpec())
    assert isinstance(box, DockerBox)
    assert (await box.run("echo well", timeout_s=30)).output == "well\n"
    await box.close()


async def test_without_either_one_sentence_names_both_remedies(engine: Engine) -> None:
    (engine.state / "engine-is-down").touch()
    either = EitherSandbox(LackingSandbox(), DockerSandbox())
    told = either.lacks()
    assert told.startswith("there is none; remedy: get it; or else with Docker: no Docker engine answers: ")
    assert told.endswith("remedy: start it, or allow this account to use it")
    with pytest.raises(EnvError, match="no box can be made here: there is none; remedy: get it; or else with Docker"):
        await either.start(BoxSpec())
    (engine.state / "engine-is-down").unlink()
    assert either.lacks() == "", "as soon as there is one"


def test_a_kind_may_be_asked_for(tmp_path: Path) -> None:
    assert make_sandbox(tmp_path, kind="docker").name == "docker"
    assert make_sandbox(tmp_path, kind="bubblewrap").name == "bubblewrap"
