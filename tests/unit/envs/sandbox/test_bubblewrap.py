"""What a box does for those who use it: commands, the shell that lasts, its environment, its end."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path

import pytest

from openclaw_rl.envs.sandbox.box import BoxLimits, BoxSpec
from openclaw_rl.envs.sandbox.bubblewrap import BubblewrapSandbox, plan_of
from openclaw_rl.errors import EnvError, TaskError
from openclaw_rl.types import Ran
from tests.fakes.boxes import Boxes, at_rest, leftovers, nothing_is_left


def said(ran: Ran) -> str:
    assert ran.exit_code == 0, ran
    return ran.output


async def test_a_command_has_a_shell_of_its_own_in_the_workdir(boxes: Boxes) -> None:
    box = await boxes.open(workdir="/work/deep", env={"TASK": "count"})
    assert (
        said(await box.run('pwd; echo "$TASK $MORE"', timeout_s=30, env={"MORE": "yes"})) == "/work/deep\ncount yes\n"
    )
    assert said(await box.run('cd /tmp; X=1; echo "[$MORE]"', timeout_s=30)) == "[]\n"
    assert said(await box.run('pwd; echo "[$X]"', timeout_s=30)) == "/work/deep\n[]\n"
    assert (await box.run("exit 7", timeout_s=30)).exit_code == 7
    assert (await box.run("kill -9 $$", timeout_s=30)).exit_code == 128 + 9
    assert (await box.run("nonesuch", timeout_s=30)).exit_code == 127


async def test_a_command_reads_what_it_is_given(boxes: Boxes) -> None:
    box = await boxes.open()
    data = bytes(range(256)) * 4096
    ran = await box.run("wc -c; cat >/tmp/in", timeout_s=30, stdin=data)
    assert said(ran).split() == [str(len(data))]
    assert said(await box.run("cat", timeout_s=30)) == ""


async def test_the_shell_keeps_directory_and_variables(boxes: Boxes) -> None:
    box = await boxes.open()
    assert said(await box.shell("cd /tmp; NAME='a b'; f() { echo \"f $1\"; }", timeout_s=30)) == ""
    assert said(await box.shell('pwd; echo "$NAME"; f x', timeout_s=30)) == "/tmp\na b\nf x\n"
    assert await box.shell("false", timeout_s=30) == Ran(exit_code=1, output="")
    assert said(await box.shell("printf 'no newline'", timeout_s=30)) == "no newline"
    assert said(await box.shell("echo to stderr >&2", timeout_s=30)) == "to stderr\n"


@pytest.mark.parametrize("broken", ["echo 'open", "if true; then", "}", ")", "echo $(", "cat <<EOF\nx", "\\"])
async def test_a_broken_command_does_not_hang_the_shell(boxes: Boxes, broken: str) -> None:
    box = await boxes.open()
    await box.shell("X=kept", timeout_s=30)
    assert (await box.shell(broken, timeout_s=30)).exit_code is not None
    assert said(await box.shell("echo $X", timeout_s=30)) == "kept\n"


async def test_a_command_cannot_read_the_commands_to_come(boxes: Boxes) -> None:
    box = await boxes.open()
    assert said(await box.shell("cat; read x; echo [$x]", timeout_s=30)) == "[]\n"
    assert said(await box.shell("echo next", timeout_s=30)) == "next\n"


async def test_a_shell_that_ends_is_replaced(boxes: Boxes) -> None:
    box = await boxes.open(workdir="/work")
    await box.shell("cd /tmp; X=1", timeout_s=30)
    assert await box.shell("echo bye; exit 3", timeout_s=30) == Ran(exit_code=3, output="bye\n")
    assert said(await box.shell("pwd; echo [$X]", timeout_s=30)) == "/work\n[]\n"
    assert (await box.shell("exec true", timeout_s=30)).exit_code == 0
    assert said(await box.shell("echo again", timeout_s=30)) == "again\n"


async def test_a_command_that_takes_too_long_takes_the_shell_along(boxes: Boxes) -> None:
    box = await boxes.open()
    await box.shell("X=1", timeout_s=30)
    ran = await box.shell("echo first; trap '' TERM INT HUP; while :; do sleep 1000; done", timeout_s=2.0)
    assert ran == Ran(exit_code=None, output="first\n")
    assert said(await box.shell("echo [$X]; pgrep sleep || echo none", timeout_s=30)) == "[]\nnone\n"
    assert await box.run("echo one; sleep 1000", timeout_s=2.0) == Ran(exit_code=None, output="one\n")
    assert said(await box.run("pgrep sleep || echo none", timeout_s=30)) == "none\n"


async def test_what_a_command_leaves_in_the_background_goes_on(boxes: Boxes) -> None:
    """And may write, although nobody reads it any more; it does not keep the command from ending."""
    box = await boxes.open()
    server = "(for i in 1 2 3 4 5 6 7 8 9; do sleep 0.05; echo noise; done; echo survived >/tmp/end) & echo started"
    assert said(await box.run(server, timeout_s=30)) == "started\n"
    assert (
        said(await box.run("while [ ! -e /tmp/end ]; do sleep 0.05; done; cat /tmp/end", timeout_s=30)) == "survived\n"
    )


async def test_output_is_kept_up_to_its_limit_and_the_rest_is_read(boxes: Boxes) -> None:
    box = await boxes.open(limits=BoxLimits(output_bytes=1000))
    ran = await box.run("head -c 3000000 /dev/zero | tr '\\0' x", timeout_s=60)
    assert (ran.exit_code, ran.output, ran.is_cut) == (0, "x" * 1000, True)
    ran = await box.shell("printf '%01000d' 0; echo", timeout_s=60)
    assert (ran.exit_code, len(ran.output), ran.is_cut) == (0, 1000, True)
    ran = await box.shell("printf '%01000d' 0", timeout_s=60)
    assert (ran.exit_code, len(ran.output), ran.is_cut) == (0, 1000, False)
    assert said(await box.shell("echo ok", timeout_s=60)) == "ok\n"


async def test_a_client_that_leaves_stops_its_command(boxes: Boxes) -> None:
    box = await boxes.open()
    for call in (box.run, box.shell):
        task = asyncio.create_task(call("touch /tmp/begun; sleep 1000", timeout_s=60))
        said(await box.run("while [ ! -e /tmp/begun ]; do sleep 0.02; done", timeout_s=30))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert said(await box.run("pgrep sleep || echo none; rm /tmp/begun", timeout_s=30)) == "none\n"
    assert said(await box.shell("echo usable", timeout_s=30)) == "usable\n"


async def test_commands_run_side_by_side(boxes: Boxes) -> None:
    box = await boxes.open()
    together = (
        box.run("while [ ! -e /tmp/go ]; do sleep 0.02; done; echo one", timeout_s=60),
        box.run("touch /tmp/go; echo two", timeout_s=60),
        box.shell("echo three", timeout_s=60),
        box.shell("echo four", timeout_s=60),
    )
    ended = await asyncio.gather(*together)
    assert [said(ran) for ran in ended] == ["one\n", "two\n", "three\n", "four\n"]


async def test_what_no_shell_would_start_is_an_observation(boxes: Boxes) -> None:
    box = await boxes.open()
    for call in (box.run, box.shell):
        assert (await call("echo \0", timeout_s=30)).exit_code == 126
        assert (await call("x" * 200_000, timeout_s=30)).exit_code == 126
        assert (await call("echo \ud800", timeout_s=30)).exit_code == 0


async def test_trees_are_copies_and_read_only_folders_are_not(boxes: Boxes, tmp_path: Path) -> None:
    tree, shown = tmp_path / "tree", tmp_path / "shown"
    (tree / "sub").mkdir(parents=True)
    (tree / "sub" / "file").write_text("mine")
    (tree / "script").write_text("#!/bin/sh\necho runs\n")
    (tree / "script").chmod(0o755)
    shown.mkdir()
    (shown / "tool").write_text("tool")
    spec = {"trees": {"/app": tree}, "read_only": {"/app/tools": shown, "/opt/one": shown / "tool"}, "workdir": "/app"}
    one, two = await boxes.open(**spec), await boxes.open(**spec)
    assert said(await one.run("./script; cat sub/file tools/tool /opt/one", timeout_s=30)) == "runs\nminetooltool"
    said(await one.run("echo theirs >sub/file; rm script; touch new; chmod 777 sub; chown 5:5 sub/file", timeout_s=30))
    assert (await one.run("touch tools/x", timeout_s=30)).exit_code == 1
    assert (await one.run("echo x >/opt/one", timeout_s=30)).exit_code == 1
    assert said(await two.run("ls; cat sub/file", timeout_s=30)) == "script\nsub\ntools\nmine"
    assert (tree / "sub" / "file").read_text() == "mine"
    assert sorted(path.name for path in tree.iterdir()) == ["script", "sub"]


async def test_a_box_has_users(boxes: Boxes) -> None:
    box = await boxes.open()
    assert said(await box.run("id -u; id -un; hostname; echo $HOME", timeout_s=30)) == "0\nroot\nbox\n/root\n"
    if said(await box.run("cat /proc/self/uid_map", timeout_s=30)).split()[-1] == "1":
        pytest.skip("this account has no range of user ids: a box of it has nobody but root")
    ran = await box.run("useradd -m me && su me -c 'id -un; touch ~/mine' && stat -c %U /home/me/mine", timeout_s=30)
    assert said(ran) == "me\nme\n"
    assert (
        said(await box.run("chown me /work && su me -c 'touch /work/x' && rm /work/x && echo ok", timeout_s=30))
        == "ok\n"
    )


async def test_a_root_of_layers(boxes: Boxes, image: Path, tmp_path: Path) -> None:
    """Changed, kept as a layer, and seen by the next box through both: what was removed stays removed."""
    first = await boxes.open(layers=(image,))
    assert said(await first.run("cat /etc/issue; stat -c %u /etc/issue", timeout_s=30)) == "a small image\n0\n"
    change = (
        "cat >/work/new; chown 1000 /work/new; rm -r /old; mkdir /old; touch /old/other; rm /etc/issue; ln /work/new /l"
    )
    said(await first.run(change, timeout_s=30, stdin=b"added"))
    layer = tmp_path / "layer"
    await first.keep_layer(layer)
    assert (image / "etc" / "issue").exists()
    second = await boxes.open(layers=(image, layer))
    look = "cat /work/new; stat -c ' %u %h' /work/new; ls /old; test -e /etc/issue; echo $?"
    assert said(await second.run(look, timeout_s=30)) == "added 1000 2\nother\n1\n"
    said(await second.run("touch /more", timeout_s=30))
    top = tmp_path / "top"
    await second.keep_layer(top)
    third = await boxes.open(layers=(image, layer, top))
    assert said(await third.run("cat /work/new; ls /old /more", timeout_s=30)) == "added/more\n\n/old:\nother\n"


async def test_a_box_of_this_machines_programs_has_no_layer(boxes: Boxes, tmp_path: Path) -> None:
    box = await boxes.open()
    with pytest.raises(TaskError, match="no layer to keep"):
        await box.keep_layer(tmp_path / "layer")


async def test_a_layer_has_no_folders_without_end(boxes: Boxes, image: Path, tmp_path: Path) -> None:
    box = await boxes.open(layers=(image,))
    said(await box.run(f"mkdir -p /work/{'d/' * 400}", timeout_s=30))
    with pytest.raises(EnvError, match="lies in more than 256 others"):
        await box.keep_layer(tmp_path / "layer")
    assert not (tmp_path / "layer").exists()


async def test_a_folder_without_a_shell_is_no_image(sandbox: BubblewrapSandbox, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(EnvError, match="no root"):
        await sandbox.start(BoxSpec(layers=(tmp_path / "empty",)))


async def test_sixteen_boxes_at_once_know_nothing_of_each_other(boxes: Boxes) -> None:
    opened = await asyncio.gather(*(boxes.open() for _ in range(16)))
    await asyncio.gather(*(box.run(f"echo {n} >/tmp/who", timeout_s=60) for n, box in enumerate(opened)))
    found = await asyncio.gather(*(box.shell("cat /tmp/who", timeout_s=60) for box in opened))
    assert [said(ran) for ran in found] == [f"{n}\n" for n in range(16)]


async def test_a_closed_box_is_gone_and_says_so(boxes: Boxes) -> None:
    before = await at_rest(boxes.sandbox)
    box = await boxes.open()
    await box.shell("sleep 1000 & setsid sleep 1000 & nohup sleep 1000 &", timeout_s=30)
    assert leftovers(boxes.sandbox).processes >= before.processes + 5
    await asyncio.gather(box.close(), box.close())
    await box.close()
    await nothing_is_left(boxes.sandbox, before)
    for call in (box.run("true", timeout_s=1), box.shell("true", timeout_s=1), box.read("/etc/passwd", max_bytes=1)):
        with pytest.raises(EnvError, match="gone|closed"):
            await call


async def test_a_start_that_is_given_up_leaves_nothing(sandbox: BubblewrapSandbox) -> None:
    before = await at_rest(sandbox)
    for delay_s in (0.0, 0.001, 0.005, 0.01, 0.02):
        task = asyncio.create_task(sandbox.start(BoxSpec()))
        await asyncio.sleep(delay_s)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await (await task).close()
    await nothing_is_left(sandbox, before)


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"image": "debian:12"}, "needs Docker"),
        ({"workdir": "work"}, "absolute path"),
        ({"workdir": "/a/../b"}, "absolute path"),
        ({"trees": {"/app": Path("/nonesuch")}}, "no folder"),
        ({"trees": {"/proc/x": Path("/usr")}}, "nothing can be put"),
        ({"trees": {"/": Path("/usr")}}, "nothing can be put"),
        ({"read_only": {"/dev/x": Path("/usr")}}, "nothing can be put"),
        ({"read_only": {"/x": Path("/nonesuch")}}, "not there"),
        ({"layers": (Path("/nonesuch"),)}, "no folder"),
        ({"gateway": "ftp://x"}, "http://HOST:PORT"),
        ({"gateway": "http://127.0.0.1:1/path"}, "http://HOST:PORT"),
        ({"limits": BoxLimits(memory_mb=15)}, "16 MB or more"),
        ({"limits": BoxLimits(processes=0)}, "limits"),
        ({"limits": BoxLimits(output_bytes=-1)}, "limits"),
    ],
)
def test_what_no_box_can_be_is_refused(spec: dict[str, object], why: str) -> None:
    with pytest.raises(TaskError, match=why):
        plan_of(BoxSpec(**spec))  # type: ignore[arg-type]
