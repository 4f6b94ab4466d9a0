"""A way out for a box that may have one: slirp4netns, an IP stack in a process outside, with nothing of this machine.

The box has a network of its own as every other, so it meets neither what listens on our loopback nor our sockets. What
this machine's own address offers, and its local network, it does reach.
"""

from __future__ import annotations

import os
from typing import NoReturn

from openclaw_rl.envs.sandbox.warden import kernel
from openclaw_rl.envs.sandbox.warden.uids import Uids, become_root

PROGRAM = "slirp4netns"

_READY, _NAMESPACE = 3, 4
_ARGUMENTS = (
    *("--configure", "--mtu=65520", "--disable-host-loopback", "--enable-sandbox", f"--ready-fd={_READY}"),
    *("--netns-type=path", f"/proc/self/fd/{_NAMESPACE}", "tap0"),
)


def connect(program: str, uids: Uids, user_namespace: int, network: int, ready: int) -> NoReturn:
    """In a fork of the warden: serves the network until it is killed. `ready` gets a byte when it is up."""
    try:
        kernel.die_with_parent()
        if not uids.is_shifted:  # root needs no part in the box; an ordinary user is somebody only there
            kernel.setns(user_namespace, kernel.CLONE_NEWUSER)
            become_root()
            kernel.die_with_parent()
        with open(os.devnull, "r+b") as nothing:
            for number in (0, 1, 2):
                os.dup2(nothing.fileno(), number)
        spare = os.dup(network), os.dup(ready)  # either could lie where the other belongs
        os.dup2(spare[1], _READY)
        os.dup2(spare[0], _NAMESPACE)
        os.closerange(_NAMESPACE + 1, 1 << 16)
        os.execv(program, (PROGRAM, *_ARGUMENTS))  # noqa: S606
    finally:
        os._exit(127)
