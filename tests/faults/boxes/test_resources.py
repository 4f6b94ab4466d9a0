"""Programs that take all they can get: they get what is theirs, their command says so, and the box lives on."""

from __future__ import annotations

import ctypes
import os
import resource
from pathlib import Path

import pytest

from openclaw_rl.envs.sandbox.box import BoxLimits
from openclaw_rl.envs.sandbox.bubblewrap import BubblewrapSandbox
from openclaw_rl.envs.sandbox.warden.cgroup import PREFIX, homes_here
from openclaw_rl.envs.sandbox.warden.kernel import may
from openclaw_rl.types import Ran
from tests.fakes.boxes import leftovers, needs_python
from tests.faults.boxes.probe import PRELUDE, Probe

KILLED = 128 + 9
OUTPUT = Probe.LIMITS.output_bytes
MEMORY = Probe.LIMITS.memory_mb << 20
DISK = Probe.LIMITS.disk_mb << 20


async def test_output_without_an_end(probe: Probe) -> None:
    for call in (probe.sh, probe.shell):
        ran = await call("yes", timeout_s=1.5)
        assert (ran.exit_code, len(ran.output), ran.is_cut) == (None, OUTPUT, True)
        assert await probe.is_well()


async def test_output_without_a_line(probe: Probe) -> None:
    ran = await probe.sh("head -c 20000000 /dev/zero | tr '\\0' x")
    assert (ran.exit_code, ran.output, ran.is_cut) == (0, "x" * OUTPUT, True)


async def test_output_that_is_no_text(probe: Probe) -> None:
    """Every byte, broken UTF-8, control sequences of terminals, and a character that is cut by the limit."""
    for call in (probe.sh, probe.shell):
        ran = await call(r"printf '\377\376\0\033]0;x\007\r\302'; head -c 30000 /dev/urandom")
        assert ran.exit_code == 0
        assert ran.output.encode().startswith("\ufffd\ufffd\ufffd\033]0;x\007\r".encode())
        assert "\0" not in ran.output
    ran = await probe.sh(f"head -c {OUTPUT - 1} /dev/zero | tr '\\0' x; printf '\\303\\274\\303\\274'")
    assert (ran.output, ran.is_cut) == ("x" * (OUTPUT - 1), True)


async def test_a_daemon_that_never_stops_writing(probe: Probe) -> None:
    """Others of its box, and this process, have better things to do."""
    for _ in range(3):
        assert (await probe.shell("yes & yes >&2 &")).exit_code == 0
    for _ in range(10):
        assert (await probe.sh("echo ok")).output == "ok\n"
        assert (await probe.shell("true")).exit_code == 0


async def test_a_fork_bomb(probe: Probe, sandbox: BubblewrapSandbox) -> None:
    # The bomb is let go of by a shell that ends, or is killed as its time is over: either way it goes on.
    ran = await probe.sh("bomb() { bomb | bomb & }; bomb; sleep 0.5", timeout_s=5)
    assert ran.exit_code in (0, KILLED, None)
    assert leftovers(sandbox).processes <= Probe.LIMITS.processes + Probe.NEIGHBOUR.limits.processes


@needs_python
async def test_a_fork_bomb_whose_parts_belong_to_no_command(probe: Probe, sandbox: BubblewrapSandbox) -> None:
    bomb = "while True:\n try:\n  if os.fork() == 0: os.setsid()\n except OSError: pass"
    assert (await probe.python(bomb, timeout_s=0.5)).exit_code in (KILLED, None)
    assert leftovers(sandbox).processes <= Probe.LIMITS.processes + Probe.NEIGHBOUR.limits.processes
    refused = await probe.box.run("echo ok", timeout_s=5)
    assert refused.exit_code in (0, 126, None), "what an agent did to its own box is no failure of the environment"


async def test_what_control_groups_are_told(probe: Probe, sandbox: BubblewrapSandbox) -> None:
    """Limits of a process do for much of it, so that a group without a limit would not be noticed."""
    homes = homes_here()
    if not homes.processes or not homes.memory:
        pytest.skip("this account can make no control groups here")
    groups = list(Path(homes.processes).glob(f"{PREFIX}{sandbox.warden}-*"))
    assert sorted(int((group / "pids.max").read_text()) for group in groups) == [16, Probe.LIMITS.processes]
    limits = []
    for group in Path(homes.memory).glob(f"{PREFIX}{sandbox.warden}-*"):
        file = next(group / name for name in ("memory.max", "memory.limit_in_bytes") if (group / name).exists())
        limits.append(int(file.read_text()))
    assert sorted(limits) == [(64 + 4) << 20, MEMORY + DISK]


@needs_python
async def test_dead_children_that_nobody_buries(probe: Probe) -> None:
    farm = """
num = 0
try:
    while True:
        if os.fork() == 0:
            os._exit(0)
        num += 1
except OSError as error:
    print(num, errno.errorcode[error.errno])
"""
    num, reason = (await probe.python(farm)).output.split()
    assert int(num) < Probe.LIMITS.processes
    assert reason == "EAGAIN"
    assert await probe.is_well()


@needs_python
async def test_four_gigabytes(probe: Probe) -> None:
    ran = await probe.python("print(len(bytearray(4 << 30)))")
    assert ran.exit_code == KILLED or "MemoryError" in ran.output, ran
    assert await probe.is_well()


@needs_python
async def test_four_gigabytes_that_are_shared(probe: Probe) -> None:
    """Which is not what a limit of a process's own memory counts."""
    hoard = "import mmap\nfor _ in range(64):\n m = mmap.mmap(-1, 64 << 20)\n m.write(bytes(64 << 20))\n keep.append(m)"
    ran = await probe.python(f"keep = []\n{hoard}\nprint('got it')")
    assert ran.exit_code == KILLED or "MemoryError" in ran.output, ran
    assert await probe.is_well()


@needs_python
async def test_four_gigabytes_in_files_that_are_nowhere(probe: Probe) -> None:
    hoard = """
keep = []
while len(keep) < 512:
    keep.append(os.memfd_create("hoard"))
    os.write(keep[-1], bytes(8 << 20))
print("got it")
"""
    ran = await probe.python(hoard)
    assert ran.exit_code == KILLED or "not implemented" in ran.output, ran
    assert await probe.is_well()


@needs_python
async def test_four_gigabytes_in_segments_that_outlive_their_makers(probe: Probe) -> None:
    hoard = """
libc.shmat.restype = ctypes.c_void_p
libc.shmdt.argtypes = (ctypes.c_void_p,)
for _ in range(4096):
    segment = libc.shmget(0, ctypes.c_size_t(1 << 20), 0o1600)
    if segment < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    at = libc.shmat(segment, None, 0)
    ctypes.memset(ctypes.c_void_p(at), 1, 1 << 20)
    libc.shmdt(at)
print("got it")
"""
    for _ in range(3):
        ran = await probe.python(hoard)
        assert ran.exit_code == KILLED or "not implemented" in ran.output, ran
    assert await probe.is_well()


@needs_python
async def test_four_gigabytes_by_many(probe: Probe) -> None:
    """None of them has more than it may, and all of them have."""
    hoard = """
children = []
for _ in range(40):
    children.append(os.fork())
    if children[-1] == 0:
        keep = bytearray(100 << 20)
        signal.alarm(20)
        signal.pause()
        os._exit(0)
signal.alarm(10)
killed = 0
while killed < 20:
    killed += os.WIFSIGNALED(os.wait()[1])
for child in children:
    try:
        os.kill(child, 9)
    except OSError:
        pass
"""
    ran = await probe.python(hoard)
    assert ran.exit_code in (0, KILLED), ran
    assert await probe.is_well()


async def test_one_file_that_fills_the_disk(probe: Probe) -> None:
    ran = await probe.sh("head -c 1000000000 /dev/zero >/big; stat -c %s /big")
    assert 0 < int(ran.output.split()[-1]) <= DISK
    assert await probe.is_well()


async def test_many_files_that_fill_the_disk(probe: Probe) -> None:
    """Wherever a box can write: it is one disk."""
    fill = "for at in / /tmp /var/tmp /work /root /etc /dev/shm; do head -c 9000000 /dev/zero >${at%/}/fill; done"
    told = await probe.sh(f"({fill}) 2>&1 | grep -c 'No space'; find / -xdev -name fill -size +0 | xargs cat | wc -c")
    refused, size = map(int, told.output.split())
    assert refused >= 6
    assert 9_000_000 < size <= DISK
    room = "rm /fill /*/fill /*/*/fill; head -c 9000000 /dev/zero >/tmp/fill && echo room"
    assert (await probe.sh(room)).output == "room\n"


@needs_python
async def test_a_million_files(probe: Probe) -> None:
    ran = await probe.python("for n in range(10**6): os.close(os.open(f'/tmp/{n}', os.O_CREAT))")
    assert ran.output.splitlines()[-1].startswith("OSError: [Errno 28] No space left on device")
    assert await probe.is_well()


async def test_a_file_that_is_larger_than_any_disk(probe: Probe) -> None:
    ran = await probe.sh("truncate -s 1T /hole; dd if=/dev/zero of=/far bs=1 count=1 seek=1T 2>&1; ls -s /hole /far")
    assert "1099511627776" not in (await probe.sh("stat -c %s /hole /far")).output, ran


@needs_python
async def test_open_files_without_end(probe: Probe) -> None:
    ran = await probe.python("n = 0\nwhile True:\n os.dup(0)")
    assert "Too many open files" in ran.output


async def test_work_without_end(probe: Probe) -> None:
    spin = "for n in 1 2 3; do (while :; do :; done) & done; while :; do :; done"
    assert await probe.sh(spin, timeout_s=0.3) == Ran(exit_code=None, output="")
    assert await probe.shell(spin, timeout_s=0.3) == Ran(exit_code=None, output="")
    # Whoever is killed still needs a moment of the core to die.
    gone = "for n in $(seq 100); do ps -eo args | grep -q '[w]hile :' || exit 0; sleep 0.1; done; exit 1"
    assert (await probe.sh(gone)).exit_code == 0, "the rest of the session ended too"


async def test_a_program_that_does_not_hear_that_it_is_to_end(probe: Probe) -> None:
    deaf = "trap '' TERM INT HUP QUIT; (trap '' TERM HUP; sleep 1000) & sleep 1000"
    assert (await probe.sh(deaf, timeout_s=0.3)).exit_code is None
    assert (await probe.sh("kill -STOP $$; echo never", timeout_s=0.3)) == Ran(exit_code=None, output="")
    assert (await probe.sh("pgrep sleep || echo none")).output == "none\n"


async def test_arguments_and_variables_without_end(probe: Probe) -> None:
    ran = await probe.sh("/bin/true $(seq 1000000)")
    assert ran.exit_code == 126
    assert "too long" in ran.output
    box = await probe.open(env={"LONG": "x" * 140_000})
    ran = await box.run("echo $LONG", timeout_s=30)
    assert (ran.exit_code, ran.is_cut) == (126, False)
    assert "too long" in ran.output


@needs_python
async def test_watches_of_files(probe: Probe) -> None:
    """The kernel counts them for whoever made the box, with those of all boxes and of this machine."""
    libc = ctypes.CDLL(None)
    hoard = "while libc.inotify_init() >= 0: pass\nprint('all', flush=True)\nsignal.pause()"
    await probe.box.write("/tmp/hoard", (PRELUDE + hoard).encode())
    await probe.sh("setsid python3 /tmp/hoard >/tmp/told & until grep -q all /tmp/told; do sleep 0.02; done")
    ours = libc.inotify_init()
    assert ours >= 0
    os.close(ours)
    theirs = await probe.neighbour.run(
        "python3 -c 'import ctypes; print(ctypes.CDLL(None).inotify_init())'", timeout_s=30
    )
    assert int(theirs.output) >= 0
    assert (await probe.refusals("attempt('fanotify', lambda: call(numbered(300, 262), 0x200, 0))"))[
        "fanotify"
    ] != "done"


@needs_python
async def test_signals_and_messages_that_nobody_takes(probe: Probe) -> None:
    """Those too are counted for whoever made the box."""
    hoard = """
import ctypes.util
num = 0
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGRTMIN + 1])
while libc.sigqueue(os.getpid(), signal.SIGRTMIN + 1, 0) == 0:
    num += 1
queues = 0
while ctypes.CDLL(ctypes.util.find_library("rt") or "libc.so.6").mq_open(f"/{queues}".encode(), 0o102, 0o600, 0) >= 0:
    queues += 1
print(num, queues)
"""
    signals, queues = map(int, (await probe.python(hoard)).output.split())
    assert signals <= 1024
    assert queues < 10


@needs_python
async def test_limits_stay_what_they_are(probe: Probe) -> None:
    became = await probe.refusals("""
import resource
def raised(name):
    try:
        limit = getattr(resource, f"RLIMIT_{name}")
        resource.setrlimit(limit, (1 << 30, 1 << 30))
    except ValueError:
        raise OSError(errno.EPERM, "")
for name in ("NPROC", "FSIZE", "NOFILE", "CORE"):
    attempt(name, lambda: raised(name))
attempt("of process 1", lambda: resource.prlimit(1, resource.RLIMIT_NOFILE, (8, 8)))
attempt("nice", lambda: os.nice(-5))
attempt("real time", lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1)))
attempt("process 1 first", lambda: write("/proc/1/oom_score_adj", "1000"))
""")
    assert not [name for name, how in became.items() if how not in ("EPERM", "EACCES")]


@pytest.mark.skipif(not may("SYS_RESOURCE"), reason="this account has no say in who is killed for memory")
async def test_a_program_cannot_have_others_killed_for_its_memory(probe: Probe) -> None:
    """Not process 1 of its box, and nobody outside."""
    await probe.sh("for score in -1000 -1 0 499; do echo $score >/proc/$$/oom_score_adj; done")
    told = await probe.sh(
        "echo 0 2>/dev/null >/proc/$$/oom_score_adj; cat /proc/1/oom_score_adj /proc/$$/oom_score_adj"
    )
    process_1, program = map(int, told.output.split()[-2:])
    assert 0 < process_1 < program


async def test_a_box_may_be_small(probe: Probe) -> None:
    """The least that is of any use: what cannot be done in it is told by its commands."""
    box = await probe.open(limits=BoxLimits(memory_mb=16, processes=8, disk_mb=1, output_bytes=1))
    for command in ("true", "head -c 100000000 /dev/zero | tail -c 90000000 >/dev/null", "true"):
        assert isinstance(await box.run(command, timeout_s=5), Ran)


@needs_python
@pytest.mark.skipif(
    0 <= resource.getrlimit(resource.RLIMIT_NOFILE)[1] < 8192, reason="this account may open fewer files than a box"
)
async def test_descriptors_that_nobody_receives(probe: Probe) -> None:
    """The kernel counts them for an account, and all boxes are of one."""
    hoard = """
pairs = []
try:
    while True:
        pairs.append(socket.socketpair())
        for _ in range(50):
            socket.send_fds(pairs[-1][0], [b"x"], [0] * 200, socket.MSG_DONTWAIT)
except OSError as error:
    print(errno.errorcode[error.errno], flush=True)
signal.pause()
"""
    await probe.box.write("/tmp/hoard", (PRELUDE + hoard).encode())
    await probe.sh("setsid python3 /tmp/hoard >/tmp/told 2>&1 & until grep -q E /tmp/told; do sleep 0.02; done")
    assert (await probe.sh("cat /tmp/told")).output == "ETOOMANYREFS\n"
    for box in (probe.box, probe.neighbour, await probe.open()):
        await box.write("/tmp/file", b"told")
        assert await box.read("/tmp/file", max_bytes=10) == b"told"
        assert (await box.run("echo well", timeout_s=30)).output == "well\n"
