"""One box, from a fork of the warden to the loop of its process 1. What fails on the way is told over its socket."""

from __future__ import annotations

import errno
import os
import socket
from contextlib import suppress
from dataclasses import dataclass
from typing import NoReturn

from openclaw_rl.envs.sandbox.warden import kernel, wire
from openclaw_rl.envs.sandbox.warden.cgroup import Cgroup
from openclaw_rl.envs.sandbox.warden.forbidden import filter_program
from openclaw_rl.envs.sandbox.warden.init import Init, build_root
from openclaw_rl.envs.sandbox.warden.memory import MemoryWatch
from openclaw_rl.envs.sandbox.warden.plan import BoxPlan
from openclaw_rl.envs.sandbox.warden.program import Confinement
from openclaw_rl.envs.sandbox.warden.root import UPPER, stage
from openclaw_rl.envs.sandbox.warden.uids import Uids, become_root, user_namespace

_MOST = {
    "user_namespaces": "0",  # the filter of calls says the same
    "inotify_instances": "4",
    "inotify_watches": "4096",
    "fanotify_groups": "0",
}
"""What the kernel counts for whoever made a box, for all boxes together: each has a part, so that none takes all."""

_KILLED_EARLY = "500"
"""Of at most 1000; its programs have that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Birth:
    """`box`: the socket of whoever wants it. `bubblewrap`: the program, open. `base`: of `base.py`.

    `warden`: where process 1 is reported, by a pidfd, and when it has moved in, its namespaces.
    """

    plan: BoxPlan
    base: str
    uids: Uids
    cgroup: Cgroup
    counts_memory: bool
    bubblewrap: int
    box: socket.socket
    warden: socket.socket

    def attend(self) -> NoReturn:
        """In a fork. It stays, outside of the box, as the parent of process 1, and ends when that has ended."""
        try:
            kernel.die_with_parent()
            self._close_what_others_have()
            with open(os.devnull, "r+b") as nothing:
                for number in (0, 1, 2):
                    os.dup2(nothing.fileno(), number)
            if kernel.may("SYS_RESOURCE"):
                _die_before_others()
            moving = self._move_into_cgroup()
            arguments = self._enter_namespaces()
            os.waitpid(moving, 0)
            first = os.fork()
            if first == 0:
                self._live(arguments)
            wire.send(self.warden, {"born": True}, [os.pidfd_open(first)])
            self.box.close()
            self.warden.close()
            os.waitpid(first, 0)
        except OSError as error:
            self._mourn(error)
        finally:
            os._exit(0)

    def _move_into_cgroup(self) -> int:
        """In a child, for us: the kernel takes milliseconds over it, and we have other things to do."""
        ourselves = os.getpid()
        child = os.fork()
        if child == 0:
            try:
                self.cgroup.take(ourselves)
            finally:
                os._exit(0)
        return child

    def _enter_namespaces(self) -> list[str]:
        namespace = user_namespace(self.uids.uid_map, self.uids.gid_map)
        if self.uids.is_shifted:
            kernel.unshare(kernel.CLONE_NEWNS)
            arguments = stage(self.plan, self.base, self.uids, namespace)
            kernel.setns(namespace, kernel.CLONE_NEWUSER)
            become_root()
        else:
            kernel.setns(namespace, kernel.CLONE_NEWUSER)
            become_root()
            kernel.unshare(kernel.CLONE_NEWNS)
            arguments = stage(self.plan, self.base, self.uids, namespace)
        os.close(namespace)
        kernel.die_with_parent()  # a change of ids has taken it back
        for name, most in _MOST.items():
            with suppress(OSError), open(f"/proc/sys/user/max_{name}", "w") as file:  # not every kernel has them all
                file.write(most)
        kernel.unshare(kernel.CLONE_NEWPID)
        return arguments

    def _live(self, arguments: list[str]) -> NoReturn:
        """Process 1."""
        try:
            kernel.die_with_parent()
            kernel.set_dumpable(False)
            upper = os.open(UPPER, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            build_root(self.bubblewrap, arguments)
            os.close(self.bubblewrap)
            os.makedirs(self.plan.workdir, exist_ok=True)
            self._move_in()
            gifts = [upper]
            if self.plan.door:
                gifts.append(_listener(self.plan.door).detach())
            confinement = Confinement.of(
                self.plan,
                has_range=self.uids.has_range,
                counts_memory=self.counts_memory,
                filter_program=filter_program(hides_memory=self.counts_memory),
            )
            init = Init(self.box, confinement, None if self.counts_memory else MemoryWatch(self.plan.memory_mb << 20))
            shell = next((path for path in ("/bin/bash", "/usr/bin/bash") if os.access(path, os.X_OK)), "/bin/sh")
            wire.send(self.box, {"ready": True, "shell": shell}, gifts)
            for gift in gifts:
                os.close(gift)
            init.serve()
        except OSError as error:
            self._mourn(error)
        finally:
            os._exit(0)

    def _move_in(self) -> None:
        """Tells the warden what it needs for errands here, and waits for the network if there is to be one."""
        up, comes_up = os.pipe()
        reported = [os.open(f"/proc/self/ns/{kind}", os.O_RDONLY | os.O_CLOEXEC) for kind in ("user", "mnt", "net")]
        wire.send(self.warden, {"moved in": True}, [*reported, comes_up])
        self.warden.close()
        for descriptor in (*reported, comes_up):
            os.close(descriptor)
        if self.plan.network == "full" and not os.read(up, 1):
            raise OSError(errno.ENETDOWN, "slirp4netns gave the box no network")
        os.close(up)

    def _close_what_others_have(self) -> None:
        """A fork of the warden has the sockets of all boxes."""
        kept = sorted((self.box.fileno(), self.warden.fileno(), self.bubblewrap))
        first = 3
        for descriptor in kept:
            os.closerange(first, descriptor)
            first = descriptor + 1
        os.closerange(first, 1 << 16)

    def _mourn(self, error: OSError) -> None:
        with suppress(OSError):
            wire.send(self.box, {"failed": error.strerror or str(error)})


def _die_before_others() -> None:
    """When the machine's memory ends, a box goes first. Whoever may say so has the last word: no program of the box
    can put itself below this, and so its process 1 is never the first in it to be killed."""
    with open("/proc/self/oom_score_adj", "w") as file:
        file.write(_KILLED_EARLY)


def _listener(port: int) -> socket.socket:
    """Made before any program runs in the box. Whoever has it answers in the box's network from wherever he is."""
    return socket.create_server(("127.0.0.1", port), backlog=128)
