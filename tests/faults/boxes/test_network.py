"""Programs that look for somebody to talk to: there is nobody, wherever they look."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from openclaw_rl.envs.sandbox.lacking import missing_network
from tests.fakes.boxes import needs_python
from tests.faults.boxes.probe import PATIENCE_S, PRELUDE, SECRET, Probe

pytestmark = needs_python

ALONE = {"ENETUNREACH", "ECONNREFUSED", "EHOSTUNREACH", "EADDRNOTAVAIL", "EAFNOSUPPORT"}
FORBIDDEN = {"EPERM", "EACCES", "EAFNOSUPPORT", "EPROTONOSUPPORT", "ESOCKTNOSUPPORT", "ENOENT", "ENODEV"}


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    """Somebody on this machine's loopback, who has heard nothing in the end."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        yield server
        with pytest.raises(BlockingIOError):
            server.accept()


async def test_what_listens_on_this_machine(probe: Probe, listener: socket.socket) -> None:
    port = listener.getsockname()[1]
    became = await probe.refusals(f"""
for host in ("127.0.0.1", "127.1.2.3", "0.0.0.0", "localhost", "::1", "::ffff:127.0.0.1", "box"):
    attempt(host, lambda: socket.create_connection((host, {port}), timeout=5))
""")
    assert len(became) == 7
    assert set(became.values()) <= ALONE


async def test_the_world_outside(probe: Probe) -> None:
    """Addresses of clouds that tell secrets, of neighbours, and of everybody; by datagrams too."""
    hosts = (
        "169.254.169.254",
        "192.0.2.1",
        "10.0.2.2",
        "8.8.8.8",
        "fd00:ec2::254",
        "2001:4860:4860::8888",
        "fe80::1%lo",
    )
    became = await probe.refusals(f"""
def send(host):
    family, _, _, _, address = socket.getaddrinfo(host, 53)[0]
    socket.socket(family, socket.SOCK_DGRAM).sendto(b"x", address)
for host in {hosts}:
    attempt(host, lambda: socket.create_connection((host, 80), timeout=5))
    attempt(f"datagram to {{host}}", lambda: send(host))
attempt("broadcast", lambda: socket.create_connection(("255.255.255.255", 80), timeout=5))
""")
    assert len(became) == 2 * len(hosts) + 1
    assert set(became.values()) <= ALONE | {"EACCES", "EINVAL", "EPERM"}


async def test_names(probe: Probe) -> None:
    ran = await probe.python("""
for name in ("example.org", "host.docker.internal", "metadata.google.internal"):
    try:
        print(socket.getaddrinfo(name, 80))
    except socket.gaierror:
        print("unknown")
""")
    assert ran.output == "unknown\n" * 3


async def test_unix_sockets_of_this_machine(probe: Probe) -> None:
    """Those without a file are in a network, those with one are in a folder; neither is the box's."""
    path = probe.folder / "socket"
    with socket.socket(socket.AF_UNIX) as abstract, socket.socket(socket.AF_UNIX) as named:
        abstract.bind(f"\0{SECRET[:20]}")
        named.bind(str(path))
        for server in (abstract, named):
            server.listen()
            server.setblocking(False)
        became = await probe.refusals(f"""
for name in ("\\0{SECRET[:20]}", "{path}", "/run/docker.sock", "/run/dbus/system_bus_socket", "/run/systemd/private"):
    attempt(name.strip("\\0"), lambda: socket.socket(socket.AF_UNIX).connect(name))
""")
        assert set(became.values()) <= {"ECONNREFUSED", "ENOENT"}
        for server in (abstract, named):
            with pytest.raises(BlockingIOError):
                server.accept()


async def test_raw_packets(probe: Probe) -> None:
    became = await probe.refusals("""
attempt("raw", lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP))
attempt("raw 6", lambda: socket.socket(socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_ICMPV6))
attempt("packet", lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW))
attempt("tun", lambda: os.open("/dev/net/tun", os.O_RDWR))
""")
    assert len(became) == 4
    assert set(became.values()) <= FORBIDDEN


async def test_other_families_of_sockets(probe: Probe) -> None:
    """Of virtual machines, of the kernel's ciphers, of radios: few programs need them, and holes were found in many."""
    became = await probe.refusals("""
for family in range(3, 46):
    if family not in (socket.AF_INET6, socket.AF_NETLINK):
        attempt(str(family), lambda: socket.socket(family, socket.SOCK_DGRAM))
""")
    assert set(became.values()) == {"EAFNOSUPPORT"}


async def test_the_network_of_the_box_itself(probe: Probe) -> None:
    """It has a loopback, and no way to get anything else."""
    became = await probe.refusals("""
netlink = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
def asked(kind, body):
    netlink.send(struct.pack("IHHII", 16 + len(body), kind, 1 | 4 | 0x400, 1, 0) + body)
    answer = netlink.recv(65536)
    if (error := -struct.unpack_from("i", answer, 16)[0]) > 0:
        raise OSError(error, "")
NEWLINK, NEWADDR, NEWROUTE = 16, 20, 24
attempt("link", lambda: asked(NEWLINK, struct.pack("BxHiII", 0, 0, 1, 0, 0xFFFFFFFF)))
attempt("address", lambda: asked(NEWADDR, struct.pack("BBBBIHH4s", 2, 24, 0, 0, 1, 8, 2, bytes((10, 9, 8, 7)))))
attempt("route", lambda: asked(NEWROUTE, struct.pack("8BI", 2, 0, 0, 0, 254, 4, 0, 1, 0)))
""")
    assert became == {"link": "EPERM", "address": "EPERM", "route": "EPERM"}
    assert (await probe.sh("cat /proc/net/dev | sed -n 's/^ *\\(.*\\):.*/\\1/p'")).output == "lo\n"
    assert (
        await probe.sh("cat /proc/net/route /proc/net/unix /proc/net/tcp | grep -v 'Iface\\|Num\\|sl'")
    ).output == ""


async def test_boxes_do_not_meet(probe: Probe) -> None:
    """What one listens to, the other does not reach, under any name."""
    serve = (
        "s = socket.create_server(('0.0.0.0', 4567)); u = socket.socket(socket.AF_UNIX); u.bind('\\0meet'); u.listen()"
    )
    code = f"{PRELUDE}\n{serve}\nprint('listens', flush=True)\nsignal.pause()"
    await probe.neighbour.write("/tmp/serve", code.encode())
    await probe.neighbour.run(
        "setsid python3 /tmp/serve >/tmp/told & until grep -q listens /tmp/told; do sleep 0.02; done",
        timeout_s=PATIENCE_S,
    )
    became = await probe.refusals("""
attempt("port", lambda: socket.create_connection(("127.0.0.1", 4567), timeout=5))
attempt("abstract", lambda: socket.socket(socket.AF_UNIX).connect("\\0meet"))
""")
    assert became == {"port": "ECONNREFUSED", "abstract": "ECONNREFUSED"}


async def test_a_box_with_a_network_does_not_meet_this_machine(probe: Probe, listener: socket.socket) -> None:
    if reason := missing_network():
        pytest.skip(reason)
    box = await probe.open(network="full")
    code = f"""
for host in ("127.0.0.1", "10.0.2.2", "::1", "fd00::2"):
    attempt(host, lambda: socket.create_connection((host, {listener.getsockname()[1]}), timeout=2))
attempt("abstract", lambda: socket.socket(socket.AF_UNIX).connect("\\0{SECRET[:20]}"))
attempt("packet", lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW))
"""
    with socket.socket(socket.AF_UNIX) as abstract:
        abstract.bind(f"\0{SECRET[:20]}")
        abstract.listen()
        ran = await box.run("python3 -", timeout_s=PATIENCE_S, stdin=(PRELUDE + code).encode())
    assert len(ran.output.splitlines()) == 6
    assert "=done" not in ran.output
    assert "tap0" in (await box.run("cat /proc/net/dev", timeout_s=PATIENCE_S)).output
