"""Programs that reach for more than their box: the kernel, process 1, users they are not. The answer is a refusal."""

from __future__ import annotations

import os
import platform

import pytest

from tests.fakes.boxes import needs_python
from tests.faults.boxes.probe import Probe

REFUSED = {"EPERM", "EACCES", "ENOSYS", "EROFS", "ENOENT", "ENXIO", "ENODEV", "EAFNOSUPPORT", "EPROTONOSUPPORT"}
"""What a refusal says: it is forbidden, or there is nothing of the kind."""


async def assert_refused(probe: Probe, code: str) -> None:
    became = await probe.refusals(code)
    assert became, "nothing was attempted"
    assert not {name: how for name, how in became.items() if how not in REFUSED}


@needs_python
async def test_tracing_process_1(probe: Probe) -> None:
    await assert_refused(
        probe,
        """
ATTACH, SEIZE = 16, 0x4206
attempt("attach", lambda: call(numbered(101, 117), ATTACH, 1, 0, 0))
attempt("seize", lambda: call(numbered(101, 117), SEIZE, 1, 0, 0))
attempt("memory", lambda: open("/proc/1/mem", "r+b").read(1))
attempt("maps", lambda: open("/proc/1/maps").read())
attempt("auxiliary", lambda: open("/proc/1/auxv", "rb").read())
room = ctypes.create_string_buffer(8)
vector = struct.pack("QQ", ctypes.addressof(room), 8)
attempt("read", lambda: call(numbered(310, 270), 1, vector, 1, vector, 1, 0))
attempt("write", lambda: call(numbered(311, 271), 1, vector, 1, vector, 1, 0))
attempt("descriptor", lambda: call(438, os.pidfd_open(1), 3, 0))
attempt("namespaces", lambda: os.readlink("/proc/1/ns/user"))
attempt("descriptors", lambda: os.listdir("/proc/1/fd"))
""",
    )


@needs_python
async def test_signals_to_process_1(probe: Probe) -> None:
    """And to everybody there is: whom they reach is of the same box."""
    await probe.neighbour.run("setsid sleep 1000 &", timeout_s=30)
    await probe.sh("setsid sleep 1000 & for n in $(seq 1 64); do kill -$n 1; kill -$n $PPID; done 2>/dev/null; true")
    assert await probe.is_well()
    await probe.sh("setsid --wait kill -9 -1")
    assert (await probe.sh("pgrep sleep || echo none")).output == "none\n"
    assert (await probe.neighbour.run("pgrep -c sleep", timeout_s=30)).output == "1\n"


@needs_python
async def test_mounts(probe: Probe) -> None:
    await assert_refused(
        probe,
        """
os.makedirs("/tmp/at")
MOUNT, UMOUNT = numbered(165, 40), numbered(166, 39)
BIND, REMOUNT = 4096, 32
for kind in (b"tmpfs", b"proc", b"sysfs", b"cgroup", b"cgroup2", b"overlay", b"devtmpfs", b"debugfs", b"nfs"):
    attempt(f"mount {kind.decode()}", lambda: call(MOUNT, b"none", b"/tmp/at", kind, 0, 0))
attempt("bind", lambda: call(MOUNT, b"/", b"/tmp/at", 0, BIND, 0))
attempt("writable /usr", lambda: call(MOUNT, b"none", b"/usr", 0, BIND | REMOUNT, 0))
attempt("writable /proc/sys", lambda: call(MOUNT, b"none", b"/proc/sys", 0, BIND | REMOUNT, 0))
attempt("umount", lambda: call(UMOUNT, b"/proc/sys", 2))
attempt("open_tree", lambda: call(428, -100, b"/", 1))
attempt("fsopen", lambda: call(430, b"tmpfs", 0))
attempt("mount_setattr", lambda: call(442, -100, b"/usr", 0, 0, 0))
attempt("pivot_root", lambda: call(numbered(155, 41), b"/tmp", b"/tmp/at"))
attempt("chroot", lambda: os.chroot("/tmp"))
""",
    )


@needs_python
async def test_new_namespaces(probe: Probe) -> None:
    await assert_refused(
        probe,
        """
UNSHARE, CLONE, SETNS = numbered(272, 97), numbered(56, 220), numbered(308, 268)
for name, flag in dict(user=0x10000000, mount=0x20000, network=0x40000000, pid=0x20000000, cgroup=0x2000000,
                       uts=0x4000000, ipc=0x8000000, time=0x80).items():
    attempt(f"unshare {name}", lambda: call(UNSHARE, flag))
attempt("clone", lambda: call(CLONE, 0x10000000 | signal.SIGCHLD, 0, 0, 0, 0))
attempt("clone3", lambda: call(435, struct.pack("11Q", 0x10000000, 0, 0, 0, signal.SIGCHLD, *[0] * 6), 88))
attempt("setns", lambda: call(SETNS, os.open("/proc/self/ns/user", os.O_RDONLY), 0))
attempt("setns to process 1", lambda: call(SETNS, os.pidfd_open(1), 0x20000))
attempt("allowed again", lambda: write("/proc/sys/user/max_user_namespaces", "100"))
""",
    )
    assert (await probe.sh("cat /proc/sys/user/max_user_namespaces")).output == "0\n", "the wall behind the filter"


@needs_python
async def test_devices(probe: Probe) -> None:
    """None can be made, and those that there are lead to nothing of this machine."""
    await assert_refused(
        probe,
        """
import stat
for name, kind, device in ("disk", stat.S_IFBLK, (8, 0)), ("memory", stat.S_IFCHR, (1, 1)):
    attempt(name, lambda: os.mknod(f"/tmp/{name}", kind | 0o666, os.makedev(*device)))
for name in "mem kmem kmsg port kvm fuse sda vda loop-control net/tun nvidia0 mapper tty0".split():
    attempt(name, lambda: os.close(os.open(f"/dev/{name}", os.O_RDWR)))
attempt("in /dev", lambda: write("/dev/new", ""))
""",
    )
    names = set((await probe.sh("ls /dev")).output.split())
    assert names <= {
        *("console", "core", "fd", "full", "null", "ptmx", "pts", "random", "shm", "stderr", "stdin", "stdout", "tty"),
        *("urandom", "zero"),
    }


async def test_rights_that_a_file_would_give(probe: Probe) -> None:
    """Programs that run as their owner do not, and capabilities cannot be had from a file."""
    uid_map = (await probe.sh("cat /proc/self/uid_map")).output.split()
    if uid_map[-1] == "1":
        pytest.skip("this account has no range of user ids: there is nobody in a box but its root")
    rise = "cp /bin/bash /tmp/rise; chmod 6755 /tmp/rise; su nobody -s /bin/bash -c '/tmp/rise -p -c \"id -u; id -g\"'"
    assert (await probe.sh(rise)).output == "65534\n65534\n"
    for program in ("su -c true", "mount", "passwd -S"):
        ran = await probe.sh(f"su nobody -s /bin/bash -c '{program} </dev/null; cat /etc/shadow' 2>&1")
        assert "denied" in ran.output
    ran = await probe.sh("setcap cap_sys_admin+ep /tmp/rise")
    assert ran.exit_code != 0


async def test_what_a_program_has_of_rights(probe: Probe) -> None:
    keep_house = 0x4EB  # CHOWN, DAC_OVERRIDE, FOWNER, KILL, SETGID, SETUID, NET_BIND_SERVICE
    for call in (probe.sh, probe.shell):
        status = dict(
            line.split(":\t", 1) for line in (await call("cat /proc/self/status")).output.splitlines() if ":\t" in line
        )
        for kind in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
            assert not int(status[kind], 16) & ~keep_house, kind
        assert status["NoNewPrivs"] == "1"
        assert status["Seccomp"] == "2"


async def test_what_is_mounted_gives_no_rights(probe: Probe) -> None:
    """Nowhere can a file make its program somebody else, or be a device; this machine's programs are only read."""
    box = await probe.open(read_only={"/opt/shown": probe.folder}, trees={"/app": probe.folder})
    lines = (await box.run("cat /proc/self/mountinfo", timeout_s=30)).output.splitlines()
    mounts = {fields[4]: fields[5].split(",") for fields in map(str.split, lines)}
    assert {"/", "/usr", "/dev", "/dev/shm", "/proc", "/opt/shown", "/app"} <= set(mounts)
    assert not [place for place, options in mounts.items() if "nosuid" not in options]
    devices = {place for place, options in mounts.items() if "nodev" not in options}
    assert {os.path.dirname(place) for place in devices} <= {"/", "/dev"}
    assert devices & {"/", "/usr", "/app", "/opt/shown", "/proc", "/dev/shm"} == set()
    writable = {place for place, options in mounts.items() if "ro" not in options and not place.startswith("/dev")}
    assert writable == {"/", "/app", "/proc"}


@needs_python
async def test_keys_of_the_kernel(probe: Probe) -> None:
    await assert_refused(
        probe,
        """
attempt("add", lambda: call(numbered(248, 217), b"user", b"name", b"x", 1, -3))
attempt("request", lambda: call(numbered(249, 218), b"user", b"name", 0, -3))
attempt("read", lambda: call(numbered(250, 219), 11, -3, 0, 0))
attempt("join", lambda: call(numbered(250, 219), 1, 0))
""",
    )


@needs_python
async def test_calls_that_holes_were_found_in(probe: Probe) -> None:
    await assert_refused(
        probe,
        """
attempt("bpf", lambda: call(numbered(321, 280), 0, 0, 0))
attempt("perf", lambda: call(numbered(298, 241), 0, 0, -1, -1, 0))
attempt("userfaultfd", lambda: call(numbered(323, 282), 0))
attempt("io_uring", lambda: call(425, 1, 0))
attempt("open by handle", lambda: call(numbered(304, 265), -100, 0, 0))
attempt("handle of a name", lambda: call(numbered(303, 264), -100, b"/", 0, 0, 0))
attempt("vhangup", lambda: call(numbered(153, 58)))
attempt("acct", lambda: call(numbered(163, 89), b"/tmp/log"))
attempt("quota", lambda: call(numbered(179, 60), 0, 0, 0, 0))
""",
    )


@needs_python
async def test_the_machine_itself(probe: Probe) -> None:
    """Nothing here would do anything if it were allowed: each call has arguments that make it fail otherwise."""
    await assert_refused(
        probe,
        """
attempt("reboot", lambda: call(numbered(169, 142), 0, 0, 0, 0))
attempt("kexec", lambda: call(numbered(246, 104), 0, 0, 0, -1))
attempt("module", lambda: call(numbered(175, 105), 0, 0, 0))
attempt("module of a file", lambda: call(numbered(313, 273), -1, 0, 0))
attempt("swapon", lambda: call(numbered(167, 224), b"/none", 0))
attempt("iopl", lambda: call(numbered(172, None), 3))
attempt("ioperm", lambda: call(numbered(173, None), 0x80, 1, 1))
attempt("hostname", lambda: socket.sethostname("box"))
attempt("domain", lambda: call(numbered(171, 162), b"box", 3))
attempt("log", lambda: call(numbered(103, 116), 10, 0, 0))
""",
    )


@needs_python
async def test_the_clock(probe: Probe) -> None:
    await assert_refused(
        probe,
        """
import time
now = time.time()
attempt("set", lambda: time.clock_settime(time.CLOCK_REALTIME, now))
attempt("settimeofday", lambda: call(numbered(164, 170), struct.pack("2q", int(now), 0), 0))
attempt("clock_adjtime", lambda: call(numbered(305, 266), 0, struct.pack("I204x", 1)))
attempt("of this time only", lambda: write("/proc/self/timens_offsets", "monotonic 1 0"))
""",
    )
    assert (await probe.sh("date -s 2001-01-01")).exit_code != 0


@needs_python
async def test_settings_of_the_kernel(probe: Probe) -> None:
    """What is written is what is there already, so that a hole would be found and do no harm."""
    await assert_refused(
        probe,
        """
for path in ("kernel/core_pattern", "kernel/modprobe", "kernel/hostname", "kernel/panic", "kernel/randomize_va_space",
             "vm/overcommit_memory", "fs/suid_dumpable", "net/ipv4/ip_forward", "user/max_net_namespaces"):
    def rewrite():
        file = os.open(f"/proc/sys/{path}", os.O_RDWR)
        os.write(file, os.pread(file, 4096, 0))
    attempt(path, rewrite)
for path in ("sysrq-trigger", "irq/default_smp_affinity", "bus/input/devices", "acpi/alarm", "kcore", "timer_list"):
    attempt(path, lambda: os.close(os.open(f"/proc/{path}", os.O_WRONLY)))
attempt("memory of the kernel", lambda: os.close(os.open("/proc/kcore", os.O_RDONLY)))
attempt("memory by page", lambda: os.close(os.open("/proc/kpagecount", os.O_RDONLY)))
attempt("/sys", lambda: os.listdir("/sys/kernel"))
""",
    )


@needs_python
async def test_control_groups(probe: Probe) -> None:
    """A box does not see where its limits are written, and so cannot leave them."""
    assert (await probe.sh("ls /sys/fs/cgroup")).exit_code != 0
    for line in (await probe.sh("cat /proc/self/cgroup")).output.splitlines():
        assert line.endswith(":/"), "the box is the root of its groups"
    assert (await probe.sh("find / -xdev -name 'cgroup.procs' -o -name release_agent 2>/dev/null")).output == ""


@needs_python
async def test_input_for_a_terminal(probe: Probe) -> None:
    """TIOCSTI types into whoever's terminal it is. A box has no terminal but those it makes."""
    await assert_refused(
        probe,
        """
import fcntl, termios
attempt("/dev/tty", lambda: os.close(os.open("/dev/tty", os.O_RDWR)))
ours, theirs = os.openpty()
if os.fork() == 0:
    os.setsid()
    fcntl.ioctl(theirs, termios.TIOCSCTTY, 0)
    attempt("TIOCSTI", lambda: fcntl.ioctl(theirs, termios.TIOCSTI, b"x"))
    attempt("TIOCLINUX", lambda: fcntl.ioctl(theirs, 0x541C, b"\\3"))
    attempt("TIOCSTI of 33 bits", lambda: call(numbered(16, 29), theirs, termios.TIOCSTI | 1 << 32, b"x"))
    os._exit(0)
os.wait()
""",
    )


@needs_python
@pytest.mark.skipif(platform.machine() != "x86_64", reason="this kind of machine has no second set of system calls")
async def test_system_calls_by_another_door(probe: Probe) -> None:
    """Those of 32-bit programs and of x32 have other numbers, and a filter of numbers would not know them."""
    became = await probe.refusals("""
import mmap
attempt("x32", lambda: call(0x40000000 | 39))
code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
code.write(b"\\xb8\\x14\\x00\\x00\\x00\\xcd\\x80\\x48\\x98\\xc3")  # mov eax, getpid; int 0x80; cdqe; ret
getpid = ctypes.CFUNCTYPE(ctypes.c_long)(ctypes.addressof(ctypes.c_char.from_buffer(code)))
def called():
    if (answer := getpid()) < 0:
        raise OSError(-answer, "")
attempt("i386", called)
""")
    assert became == {"x32": "ENOSYS", "i386": "ENOSYS"}


async def test_a_way_out_by_folders(probe: Probe) -> None:
    """An open folder, or a process whose root is another, leads around a root; there is none."""
    for way in ("/proc/self/root/../..", "/proc/1/root", "/proc/self/cwd/../../..", "/../../..", "/proc/$$/root/.."):
        ran = await probe.sh(f"ls {way}{probe.secret_file} {way}/work/secret; cat {way}{probe.secret_file}")
        assert ran.exit_code != 0
    assert (
        await probe.sh("for n in /proc/[0-9]*/fd/*; do readlink $n; done | grep '^/' | grep -v '^/dev\\|^/proc'")
    ).output == ""
