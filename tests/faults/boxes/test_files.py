"""Files that are traps: for the programs of other boxes, and for us, who read and copy what a box made."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

import pytest

from openclaw_rl.envs.sandbox.box import BoxLimits
from openclaw_rl.errors import TaskError
from tests.fakes.boxes import needs_python
from tests.faults.boxes.probe import PRELUDE, SECRET, SECRET_VARIABLE, Probe

MAX_BYTES = 1 << 20


async def copied(probe: Probe, path: str, name: str = "copy") -> Path:
    """A copy of `path`; nothing in it leads out of it, and nothing in it is but folders, files and links."""
    copy = probe.folder / name
    await probe.box.copy_out(path, copy, max_bytes=MAX_BYTES)
    for found in (copy, *copy.rglob("*")):
        mode = found.lstat().st_mode
        assert stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode)
        assert not stat.S_IMODE(mode) & 0o7000 or stat.S_ISLNK(mode)
        assert found.resolve().is_relative_to(copy.resolve())
        assert not stat.S_ISREG(mode) or SECRET.encode() not in found.read_bytes()
    return copy


async def test_what_is_on_this_machine(probe: Probe) -> None:
    """Home, data, temporary files, other people's programs' folders: their names lead nowhere."""
    home = Path.home()
    for path in (
        probe.secret_file,
        probe.folder,
        home / ".ssh",
        home / ".cache",
        home / ".config",
        Path("/var/lib/dpkg"),
    ):
        assert (await probe.sh(f"ls -d {path}")).exit_code != 0
    empty = "find /home /root /mnt /srv /opt /run /var/log /var/mail /var/spool /tmp /var/tmp -mindepth 1"
    assert (await probe.sh(empty)).output == ""
    assert (await probe.sh(f"ls -d {Path(__file__).parents[3]}")).exit_code != 0


async def test_who_is_on_this_machine(probe: Probe) -> None:
    shadow = (await probe.sh("cat /etc/shadow /etc/gshadow")).output
    assert {line.split(":")[1] for line in shadow.splitlines()} <= {"*", "!"}
    for name in ("/etc/passwd", "/etc/group", "/etc/hostname", "/etc/hosts", "/etc/resolv.conf", "/etc/machine-id"):
        told = (await probe.sh(f"cat {name}")).output
        assert told != Path(name).read_text() if Path(name).exists() else True
    assert (await probe.sh("ls -d /etc/ssh /etc/ssl/private /etc/sudoers /etc/fstab /etc/krb5.conf")).exit_code != 0


async def test_what_our_processes_have_in_their_environment(probe: Probe) -> None:
    assert os.environ[SECRET_VARIABLE] == SECRET
    for call in (probe.sh, probe.shell):
        names = {line.partition("=")[0] for line in (await call("env")).output.splitlines()}
        assert names <= {"PATH", "HOME", "LANG", "TERM", "PWD", "OLDPWD", "SHLVL", "_"}
    seen = await probe.sh("cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline /proc/1/comm | tr '\\0' '\\n' | sort -u")
    assert SECRET_VARIABLE not in seen.output
    assert str(probe.folder.parent) not in seen.output


async def test_what_is_in_other_boxes(probe: Probe) -> None:
    await probe.neighbour.run(f"echo {SECRET} >/tmp/mine; setsid sleep 1234 &", timeout_s=30)
    assert (await probe.sh("cat /tmp/mine")).exit_code != 0
    assert (await probe.sh("cat /proc/[0-9]*/cmdline | tr '\\0' ' '")).output.count("1234") == 0
    pids = (await probe.sh("ls /proc | grep -c '^[0-9]'")).output
    assert int(pids) < 10


async def test_programs_of_this_machine(probe: Probe) -> None:
    """They are shown, and cannot be changed, replaced or linked to."""
    for change in (
        "echo x >/usr/bin/env",
        "echo x >>/usr/bin/new",
        "rm /usr/bin/env",
        "mv /usr /old",
        "chmod 4755 /usr/bin/env",
        "chown 1 /usr/bin/env",
        "touch /usr/bin/env",
        "ln /usr/bin/env /tmp/env",
        "mkdir /usr/new",
        "setfattr -n user.x -v y /usr/bin/env",
    ):
        ran = await probe.sh(f"{change} 2>&1")
        assert ran.exit_code != 0, change
    assert (await probe.sh("echo evil >/etc/passwd; echo evil >/bin/evil; rm -rf /etc; true")).exit_code == 0
    assert (await probe.neighbour.run("head -c 4 /etc/passwd", timeout_s=30)).output == "root"
    assert Path("/etc/passwd").exists()
    assert not Path("/bin/evil").exists()


async def test_links_to_what_is_here(probe: Probe) -> None:
    """Planted for whoever reads, writes or copies: each leads through the box."""
    target = probe.secret_file
    await probe.sh(f"mkdir -p /w {target.parent}; cd /w; ln -s {target} link; ln -s {target.parent} folder")
    await probe.sh(f"ln -s ../../../../../..{target} /w/up")
    await probe.sh("ln -s /proc/self/root/proc/1/root /w/root; ln -s /w/loop /w/loop")
    for path in ("link", "folder/secret", "up", f"root{target}", "loop"):
        with suppress(TaskError):
            assert await probe.box.read(f"/w/{path}", max_bytes=MAX_BYTES) is None
    for path in ("/w/link", "/w/folder/secret", "/w/up"):
        await probe.box.write(path, b"evil")
        assert await probe.box.read(str(target), max_bytes=10) == b"evil", "it led through the box"
    assert not list((await copied(probe, "/w")).iterdir())
    await copied(probe, "/w/folder", "folder")
    await copied(probe, "/w/link", "link")


async def test_a_place_where_something_lies_already(probe: Probe, tmp_path: Path) -> None:
    """A copy goes to new files alone, whatever the name of one is in the box."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (tmp_path / "link").symlink_to(outside / "new")
    await probe.sh("mkdir -p '/w/..a' '/w/-rf' '/w/a\nb' '/w/ '; touch '/w/..a/..b' '/w/*' '/w/$HOME' /w/-")
    copy = await copied(probe, "/w")
    assert {path.name for path in copy.iterdir()} == {"..a", "-rf", "a\nb", " ", "*", "$HOME", "-"}
    await probe.sh("echo evil >/file")
    with pytest.raises(Exception, match="could not be copied"):
        await probe.box.copy_out("/file", tmp_path / "link", max_bytes=MAX_BYTES)
    assert not list(outside.iterdir())


async def test_what_is_no_file(probe: Probe) -> None:
    """Whoever opened it would wait, or read for ever."""
    await probe.sh("mkdir /w; cd /w; mkfifo fifo; ln -s /dev/zero zero; ln -s /dev/ptmx terminal")
    for path in ("/w/fifo", "/w/zero", "/w/terminal", "/dev/random", "/proc/self/fd/0", "/w"):
        assert await probe.box.read(path, max_bytes=MAX_BYTES) is None
        if path != "/w":
            with pytest.raises(TaskError):
                await probe.box.copy_out(path, probe.folder / "none", max_bytes=MAX_BYTES)
            with pytest.raises(TaskError):
                await probe.box.write(path, b"x")
    assert not list((await copied(probe, "/w")).iterdir())


async def test_holes(probe: Probe) -> None:
    """Files that are small there, and would be large here."""
    await probe.sh("mkdir /w; for n in 1 2 3; do truncate -s 15M /w/$n; done; truncate -s 15M /one")
    for path in ("/w", "/one"):
        with pytest.raises(TaskError, match="larger than"):
            await probe.box.copy_out(path, probe.folder / "copy", max_bytes=MAX_BYTES)
        assert not (probe.folder / "copy").exists()
    with pytest.raises(TaskError, match="at most"):
        await probe.box.read("/one", max_bytes=MAX_BYTES)


async def test_a_file_that_grows_while_it_is_read(probe: Probe) -> None:
    await probe.sh("mkdir /w; setsid sh -c 'while :; do head -c 60000 /dev/zero >>/w/log; : >/w/log; done' >&- 2>&- &")
    for _ in range(20):
        with suppress(TaskError):
            assert len(await probe.box.read("/w/log", max_bytes=30_000) or b"") <= 30_000
    await copied(probe, "/w")


async def test_many_links_to_one_file(probe: Probe) -> None:
    """They are one file there, and many here."""
    await probe.sh("mkdir /w; head -c 100000 /dev/zero >/w/0; for n in $(seq 100); do ln /w/0 /w/$n; done")
    with pytest.raises(TaskError, match="larger than"):
        await probe.box.copy_out("/w", probe.folder / "copy", max_bytes=MAX_BYTES)


@needs_python
async def test_folders_without_end(probe: Probe) -> None:
    """Deeper than any path is long, and than any call may nest."""
    box = await probe.open(limits=BoxLimits(memory_mb=128, disk_mb=64))
    dig = "import os\nos.makedirs('/w'); os.chdir('/w')\nfor n in range({}):\n os.mkdir({!r})\n os.chdir({!r})\n"
    for depth, name in ((3000, "d"), (2000, "d" * 200), (100, "d" * 60)):
        code = dig.format(depth, name, name) + "print('dug')"
        assert (await box.run("rm -rf /w; python3 -", timeout_s=60, stdin=code.encode())).output == "dug\n"
        with pytest.raises(TaskError, match="cannot be copied"):
            await box.copy_out("/w", probe.folder / "copy", max_bytes=1 << 30)
        assert not (probe.folder / "copy").exists()
    assert await box.read("/w/" + f"{'d' * 60}/" * 50 + "none", max_bytes=1) is None


@needs_python
async def test_names_that_are_no_text(probe: Probe) -> None:
    odd = {b"\xff\xfe", b"x" * 255, "\N{RIGHT-TO-LEFT OVERRIDE}".encode(), b"\x1b[2J", b'"\n{'}
    ran = await probe.python(f"""
os.mkdir("/w")
for name in {odd}:
    os.close(os.open(b"/w/" + name, os.O_CREAT))
os.symlink(b"\\xff", "/w/link")
""")
    assert ran.exit_code == 0, ran
    assert {os.fsencode(path.name) for path in (await copied(probe, "/w")).iterdir()} == {*odd, b"link"}
    with pytest.raises(TaskError):
        await probe.box.write("/w/" + "x" * 256, b"")


@needs_python
async def test_a_file_that_somebody_sits_on(probe: Probe) -> None:
    """A lease makes whoever opens the file wait for its holder, and a lock would make him wait who asks for one."""
    sit = """
import fcntl
for name in ("leased", "locked"):
    write(f"/w/{name}", "told")
file = open("/w/leased", "r+")
try:
    fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
except OSError as error:
    print(error)
lock = open("/w/locked", "r+")
fcntl.lockf(lock, fcntl.LOCK_EX)
print("sits", flush=True)
signal.signal(signal.SIGIO, signal.SIG_IGN)
signal.pause()
"""
    await probe.sh("mkdir /w")
    await probe.box.write("/tmp/sit", (PRELUDE + sit).encode())
    await probe.sh("setsid python3 /tmp/sit >/tmp/told 2>&1 & until grep -q sits /tmp/told; do sleep 0.02; done")
    assert await probe.box.read("/w/locked", max_bytes=10) == b"told"
    with suppress(TaskError):  # it says that the file is taken
        assert await probe.box.read("/w/leased", max_bytes=10) == b"told"
