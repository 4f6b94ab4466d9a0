"""The warden's loop: makes boxes, ends them, sends porters in. It ends when whoever started it does.

consumes  requests on its standard input, a socket; each brings the socket that is answered to
produces  boxes (`birth.py`), errands in them (`porter.py`, `layer.py`), and the certainty that nothing of them is left
woken by  requests, children that end, the end of whoever started it

It has one thread, because a child that dies with its parent dies with the thread that forked it.
"""

from __future__ import annotations

import gc
import os
import selectors
import shutil
import signal
import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn, cast

from openclaw_rl.envs.sandbox.warden import kernel, wire
from openclaw_rl.envs.sandbox.warden.base import PREFIX, make_base, remove_base, sweep_bases
from openclaw_rl.envs.sandbox.warden.birth import Birth
from openclaw_rl.envs.sandbox.warden.cgroup import Cgroup, homes_here, sweep
from openclaw_rl.envs.sandbox.warden.layer import copy_tree
from openclaw_rl.envs.sandbox.warden.network import PROGRAM, connect
from openclaw_rl.envs.sandbox.warden.plan import BoxPlan
from openclaw_rl.envs.sandbox.warden.porter import run_errand
from openclaw_rl.envs.sandbox.warden.uids import become_root, uids_here


@dataclass(slots=True, kw_only=True)
class _KeptBox:
    """A box as the warden knows it. `attendant`: the parent of its process 1."""

    attendant: int
    link: socket.socket
    cgroup: Cgroup
    has_network: bool
    first: int = -1
    """A pidfd of process 1."""
    namespaces: tuple[int, int] | None = None
    """Users, mounts. Known when it has moved in."""
    network: tuple[int, int] | None = None
    """For whoever connects it: its namespace, and where to say that it is up."""
    children: set[int] = field(default_factory=set)
    """Its attendant and porters that have not ended."""
    waiting: list[socket.socket] = field(default_factory=list)
    """Who wants to know when it is gone."""

    def look(self) -> bool:
        """Takes what has been reported of its birth; false when nobody is left to report."""
        with suppress(BlockingIOError):
            while (got := wire.receive(self.link)) is not None:
                if "born" in got[0]:
                    (self.first,) = got[1]
                else:
                    users, mounts, network, up = got[1]
                    self.namespaces = (users, mounts)
                    self.network = (network, up)
            return False
        return True

    def kill(self) -> None:
        self.look()
        if self.first >= 0:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self.first, signal.SIGKILL)  # and the attendant ends when that is over
        elif self.attendant in self.children:
            os.kill(self.attendant, signal.SIGKILL)
        for child in self.children - {self.attendant}:
            os.kill(child, signal.SIGKILL)

    def bury(self) -> None:
        """Nothing of it lives."""
        self.look()
        self.cgroup.remove()
        self.link.close()
        for descriptor in (self.first, *(self.namespaces or ()), *(self.network or ())):
            if descriptor >= 0:
                os.close(descriptor)
        for answers in self.waiting:
            with suppress(OSError):
                wire.send(answers, {"gone": True})
            answers.close()


class Warden:
    """One for all boxes of a sandbox."""

    def __init__(self, requests: socket.socket, bubblewrap: str, scratch: Path) -> None:
        self._requests = requests
        self._bubblewrap = os.open(bubblewrap, os.O_RDONLY | os.O_CLOEXEC)
        self._connector = shutil.which(PROGRAM)
        self._uids = uids_here()
        self._homes = homes_here()
        self._base = scratch / f"{PREFIX}{os.getpid()}"
        self._boxes: dict[int, _KeptBox] = {}
        self._selector = selectors.DefaultSelector()
        self._awake, wake = os.pipe()
        for end in (self._awake, wake):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def serve(self) -> None:
        """Until the other end is closed, or its process is gone."""
        sweep(self._homes)
        sweep_bases(self._base.parent)
        make_base(self._base, self._uids)
        self._selector.register(self._requests, selectors.EVENT_READ)
        self._selector.register(self._awake, selectors.EVENT_READ)
        self._selector.register(os.pidfd_open(os.getppid()), selectors.EVENT_READ)
        try:
            while True:
                for key, _ in self._selector.select():
                    if key.fd == self._awake:
                        self._wake()
                    elif isinstance(key.data, _KeptBox):
                        self._welcome(key.data)
                    elif key.fileobj is not self._requests or (got := wire.receive(self._requests)) is None:
                        return
                    else:
                        self._answer(*got)
        finally:
            self._end_all()
            remove_base(self._base)

    def _answer(self, request: dict[str, object], descriptors: list[int]) -> None:
        answers = socket.socket(fileno=descriptors[0])
        number = cast(int, request["box"])
        try:
            if request["do"] == "make":
                self._make(number, BoxPlan.from_json(cast(dict[str, object], request["plan"])), answers)
            elif (kept := self._boxes.get(number)) is None:
                wire.send(answers, {"gone": True})
            elif request["do"] == "end":
                kept.waiting.append(answers.dup())
                kept.kill()
            elif kept.attendant not in kept.children:  # what is left of it is whoever was on an errand
                wire.send(answers, {"gone": True})
            elif request["do"] == "layer":
                to = str(request["to"])
                kept.look()
                kept.children.add(_fork(lambda: self._keep_layer(kept, descriptors[1], to, answers)))
            else:
                kept.look()
                namespaces = kept.namespaces
                assert namespaces is not None, "a box that is ready has reported its namespaces"
                kept.children.add(_fork(lambda: run_errand(request, namespaces, answers, descriptors[1:])))
        except OSError as error:
            _tell(answers, error)
        finally:
            answers.close()
            for descriptor in descriptors[1:]:
                os.close(descriptor)

    def _make(self, number: int, plan: BoxPlan, box: socket.socket) -> None:
        cgroup = Cgroup(self._homes, f"{os.getpid()}-{number}")
        cgroup.make(memory_mb=plan.memory_mb + plan.disk_mb, processes=plan.processes)
        ours, theirs = wire.pair()
        birth = Birth(
            plan=plan,
            base=str(self._base),
            uids=self._uids,
            cgroup=cgroup,
            counts_memory=bool(self._homes.memory),
            bubblewrap=self._bubblewrap,
            box=box,
            warden=theirs,
        )
        try:
            attendant = _fork(birth.attend)
        except OSError:
            cgroup.remove()
            ours.close()
            raise
        finally:
            theirs.close()
        ours.setblocking(False)
        has_network = plan.network == "full"
        kept = _KeptBox(attendant=attendant, link=ours, cgroup=cgroup, has_network=has_network, children={attendant})
        self._boxes[number] = kept
        self._selector.register(ours, selectors.EVENT_READ, kept)

    def _welcome(self, kept: _KeptBox) -> None:
        """A box reports: process 1 is there, or has moved in, or nobody will report any more."""
        if not kept.look():
            self._selector.unregister(kept.link)
        if (network := kept.network) is None:
            return
        kept.network = None
        if kept.has_network and self._connector and (namespaces := kept.namespaces) is not None:
            connector, uids = self._connector, self._uids
            kept.children.add(_fork(lambda: connect(connector, uids, namespaces[0], *network)))
        for descriptor in network:
            os.close(descriptor)

    def _keep_layer(self, kept: _KeptBox, upper: int, to: str, answers: socket.socket) -> NoReturn:
        """Owners become those of the box. Where we are root that is a shift; else it takes the box's own view."""
        try:
            kernel.die_with_parent()
            first_uid, first_gid = self._uids.root
            if not self._uids.is_shifted:
                assert kept.namespaces is not None
                kernel.setns(kept.namespaces[0], kernel.CLONE_NEWUSER)
                become_root()
            folder = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=upper)
            copy_tree(folder, to, owner=lambda of: (max(0, of.st_uid - first_uid), max(0, of.st_gid - first_gid)))
            wire.send(answers, {"done": True})
        except OSError as error:
            _tell(answers, error)
        finally:
            os._exit(0)

    def _wake(self) -> None:
        """Children have ended. When the last of a box has, so has the box."""
        with suppress(BlockingIOError):
            os.read(self._awake, 4096)
        with suppress(ChildProcessError):
            while child := os.waitpid(-1, os.WNOHANG)[0]:
                self._bury(child)

    def _bury(self, child: int) -> None:
        for number, kept in self._boxes.items():
            if child in kept.children:
                kept.children.remove(child)
                if child == kept.attendant:
                    kept.kill()  # whoever is still on an errand in there
                if not kept.children:
                    with suppress(KeyError):  # it was left alone when it had nothing more to say
                        self._selector.unregister(kept.link)
                    kept.bury()
                    del self._boxes[number]
                return

    def _end_all(self) -> None:
        for kept in self._boxes.values():
            kept.kill()
        while self._boxes:
            self._bury(os.waitpid(-1, 0)[0])


def _fork(body: Callable[[], NoReturn]) -> int:
    child = os.fork()
    if child == 0:
        signal.set_wakeup_fd(-1)  # it is the warden's, and would be written to in its name
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        body()
    return child


def _tell(answers: socket.socket, error: OSError) -> None:
    with suppress(OSError):
        wire.send(answers, {"errno": error.errno, "failed": error.strerror or str(error)})


def main(bubblewrap: str, scratch: str) -> None:
    """A process of its own, with the socket as its standard input."""
    kernel.wipe_command_line()
    wire.open_more_files()
    requests = socket.socket(fileno=0)
    gc.disable()
    gc.freeze()  # so that forks share what they only read
    Warden(requests, bubblewrap, Path(scratch)).serve()
