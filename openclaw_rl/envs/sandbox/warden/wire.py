"""Packets of JSON and descriptors over a Unix socket that keeps packets apart.

Every request brings a socket of its own for what is answered to it. When that is closed nobody waits any more.
"""

from __future__ import annotations

import json
import resource
import socket
from collections.abc import Mapping, Sequence

MAX_PACKET = 200 * 1024
"""What the kernel takes in one piece everywhere."""
_MAX_DESCRIPTORS = 8
_MANY = 1 << 16


def open_more_files() -> None:
    """As many as this process may. A user's descriptors that were sent and not received are counted for all of its
    processes, against the limit of whoever sends: programs of a box, with a lower one, cannot stop us from sending."""
    now, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    more = _MANY if most == resource.RLIM_INFINITY else min(most, _MANY)
    if now != resource.RLIM_INFINITY and now < more:
        resource.setrlimit(resource.RLIMIT_NOFILE, (more, most))


def pair() -> tuple[socket.socket, socket.socket]:
    """Two ends. A program that is started inherits neither."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def send(end: socket.socket, message: Mapping[str, object], descriptors: Sequence[int] = ()) -> None:
    """`OSError` where nobody listens. Whoever sends keeps its descriptors, and closes them."""
    socket.send_fds(end, [json.dumps(message).encode()], list(descriptors))


def receive(end: socket.socket) -> tuple[dict[str, object], list[int]] | None:
    """None at the end. `BlockingIOError` where nothing is there yet and the socket does not wait."""
    data, descriptors, _, _ = socket.recv_fds(end, MAX_PACKET, _MAX_DESCRIPTORS, socket.MSG_CMSG_CLOEXEC)
    if not data:
        return None
    message: dict[str, object] = json.loads(data)
    return message, descriptors
