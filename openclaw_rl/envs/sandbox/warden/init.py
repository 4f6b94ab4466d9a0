"""Process 1 of a box: has bubblewrap put the root together, moves in, starts commands and buries the dead.

It is a fork of the warden, not a program of the box: nobody in the box can kill, trace or replace it. The box ends with
it, and it ends when the one who asked for the box closes the socket.
"""

from __future__ import annotations

import errno
import json
import os
import select
import signal
import socket
from contextlib import suppress
from typing import cast

from openclaw_rl.envs.sandbox.warden import kernel, wire
from openclaw_rl.envs.sandbox.warden.memory import INTERVAL_S, MemoryWatch
from openclaw_rl.envs.sandbox.warden.plan import CommandOrder
from openclaw_rl.envs.sandbox.warden.program import Confinement, become

_READY = b"+"
_SHARED = kernel.CLONE_NEWNS | kernel.CLONE_NEWNET | kernel.CLONE_NEWIPC | kernel.CLONE_NEWUTS | kernel.CLONE_NEWCGROUP
_NAMESPACES = ("--unshare-net", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try", "--hostname", "box")


def build_root(bubblewrap: int, arguments: list[str]) -> None:
    """Runs bubblewrap (an open descriptor of it), and moves into the namespaces that it made."""
    told, tells = os.pipe()
    said, says = os.pipe()
    failed, fails = os.pipe()
    wait, release = os.pipe()
    processes = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)  # ours: it is to mount a /proc that shows them
    command = ["bwrap", "--die-with-parent", *_NAMESPACES, "--pidns", str(processes), *arguments]
    command += ["--cap-drop", "ALL", "--info-fd", str(tells), "/bin/sh", "-c", "printf +; read wait"]
    child = os.fork()
    if child == 0:
        try:
            for descriptor, number in ((wait, 0), (says, 1), (fails, 2)):
                os.dup2(descriptor, number)
            for descriptor in (processes, tells):
                os.set_inheritable(descriptor, True)
            os.execve(bubblewrap, command, {})  # noqa: S606 - there is no shell yet
        except OSError as error:
            os.write(fails, f"it cannot be started ({error})".encode())
        finally:
            os._exit(127)
    for descriptor in (processes, tells, says, fails, wait):
        os.close(descriptor)
    try:
        if os.read(said, 1) != _READY:
            reason = os.read(failed, 4096).decode(errors="replace").strip()
            raise OSError(errno.EIO, f"bubblewrap made no root: {reason or 'it has no /bin/sh'}")
        inside = os.pidfd_open(int(json.loads(os.read(told, 4096))["child-pid"]))
        kernel.setns(inside, _SHARED)
        os.close(inside)
    finally:
        for descriptor in (said, told, failed, release):
            os.close(descriptor)
    os.waitpid(child, 0)


class Init:
    """Serves the box's socket until it is closed."""

    def __init__(self, box: socket.socket, confinement: Confinement, memory: MemoryWatch | None) -> None:
        self._box = box
        self._confinement = confinement
        self._memory = memory
        self._commands: dict[int, socket.socket] = {}
        """Those that run, by process id, and whom their end is told to."""
        self._poll = select.poll()  # not epoll: of its watches a user has a number, and programs of the box are one
        self._awake, wake = os.pipe()
        os.set_blocking(self._awake, False)
        os.set_blocking(wake, False)
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # which process 1 does not hear; Python's own it would
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def serve(self) -> None:
        self._poll.register(self._awake, select.POLLIN)
        self._poll.register(self._box, select.POLLIN)
        wait_ms = None if self._memory is None else 1000 * INTERVAL_S
        while True:
            ready = [descriptor for descriptor, _ in self._poll.poll(wait_ms)]
            if self._memory is not None:
                self._memory.look()
            for descriptor in ready:  # before a command that is started can get the number of one that has ended
                if descriptor not in (self._awake, self._box.fileno()):
                    self._stop(descriptor)
            if self._awake in ready:
                with suppress(BlockingIOError):
                    os.read(self._awake, 4096)
                self._bury()
            if self._box.fileno() in ready:
                if (got := wire.receive(self._box)) is None:
                    return
                self._start(cast(CommandOrder, got[0]), got[1])

    def _start(self, order: CommandOrder, descriptors: list[int]) -> None:
        answers = socket.socket(fileno=descriptors[0])
        _, stdin, output = descriptors
        try:
            process = os.fork()
        except OSError as error:
            with suppress(OSError):
                wire.send(answers, {"refused": error.strerror})
            answers.close()
            return
        else:
            if process == 0:
                become(order["argv"], order["env"], order["cwd"], stdin, output, self._confinement)
            self._commands[process] = answers
            self._poll.register(answers, select.POLLIN | select.POLLRDHUP)
        finally:
            os.close(stdin)
            os.close(output)

    def _stop(self, descriptor: int) -> None:
        """Nobody waits for a command any more: with it goes all of its session."""
        for process, answers in self._commands.items():
            if answers.fileno() == descriptor:
                self._poll.unregister(descriptor)
                _kill_session(process)
                return

    def _bury(self) -> None:
        while True:
            try:
                process, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if process == 0:
                return
            if (answers := self._commands.pop(process, None)) is not None:
                code = os.waitstatus_to_exitcode(status)
                with suppress(OSError):
                    wire.send(answers, {"ended": code if code >= 0 else 128 - code})
                with suppress(KeyError):  # it was stopped before
                    self._poll.unregister(answers)
                answers.close()


def _kill_session(session: int) -> None:
    """Again until nobody is left: who was being forked when we looked was not seen."""
    for _ in range(100):
        members = [process for process in map(int, filter(str.isdecimal, os.listdir("/proc"))) if process != 1]
        found = False
        for process in members:
            with suppress(OSError):
                if os.getsid(process) == session and not _is_dead(process):
                    os.kill(process, signal.SIGKILL)
                    found = True
        if not found:
            return


def _is_dead(process: int) -> bool:
    with open(f"/proc/{process}/stat", "rb") as file:
        return file.read().rpartition(b")")[2].split()[0] in (b"Z", b"X")
