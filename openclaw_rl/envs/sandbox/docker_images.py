"""A `BoxSpec` -> the name of the image that its container is made of, which the engine has afterwards. Blocking.

image               is fetched, where the engine does not have it
layers              the image that the highest of them names: a file that `keep_layer` wrote
neither             one of folders and of /etc, into which the programs of this machine are bound
"""

from __future__ import annotations

import hashlib
import io
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from openclaw_rl.envs.sandbox.box import BoxSpec
from openclaw_rl.envs.sandbox.docker_cli import docker, told
from openclaw_rl.envs.sandbox.door import gateway_address
from openclaw_rl.envs.sandbox.warden.base import make_base
from openclaw_rl.envs.sandbox.warden.uids import Uids
from openclaw_rl.errors import EnvError, TaskError

_PULL_S = 3600.0
_IMPORT_S = 120.0
_OURS = Uids(uid_map=((0, 0, 1),), gid_map=((0, 0, 1),))
"""Files belong to whoever makes them; the archive says that it is root."""


def has_machine_programs() -> bool:
    """Whether programs of this machine run in a container."""
    return sys.platform.startswith("linux")


def is_image(spec: BoxSpec) -> bool:
    """Whether a box of it is Docker's to make. A layer of Docker's is a file: what is in a folder, an agent wrote."""
    return bool(spec.image) or (bool(spec.layers) and spec.layers[-1].is_file())


def image_of(spec: BoxSpec) -> str:
    """`TaskError` where there can be no such box."""
    if spec.gateway:
        gateway_address(spec.gateway)
    if not has_machine_programs() and spec.gateway and spec.read_only:
        raise TaskError("programs of a harness run in boxes on Linux alone; remedy: the harness `builtin`")
    if any("," in str(path) or '"' in str(path) for path in (*spec.read_only, *spec.read_only.values())):
        raise TaskError("Docker binds no path that has a comma or a quotation mark in it")
    for path in spec.read_only.values():
        if not path.exists():
            raise TaskError(f"{path} is to be in a box, and is not there")
    if not spec.image and not spec.layers:
        return machine_image()
    image = spec.image
    if spec.layers:
        if not is_image(spec):
            raise TaskError(
                f"{spec.layers[-1]} is no layer of Docker's: tasks with an image of their own need bubblewrap; "
                "remedy: apt-get install bubblewrap"
            )
        image = spec.layers[-1].read_text()
    if not image or image.startswith("-"):
        raise TaskError(f"a box of Docker is made of an image, got {image!r}")
    if _is_there(image):
        return image
    try:
        pulled = docker("pull", "--quiet", image, timeout_s=_PULL_S)
    except subprocess.TimeoutExpired:
        raise TaskError(f"the image {image} was not fetched within {_PULL_S:g} s") from None
    if pulled.returncode:
        raise TaskError(f"the image {image} cannot be fetched: {told(pulled)}")
    return image


def machine_image() -> str:
    """For boxes of this machine's programs; made once, and again where its content changes."""
    if not has_machine_programs():
        raise TaskError("a box of this machine's programs needs Linux; remedy: a task with an image")
    data = _archive()
    image = f"openclaw-rl-machine:{hashlib.sha256(data).hexdigest()[:16]}"
    if not _is_there(image):
        made = docker("import", "-", image, data=data, timeout_s=_IMPORT_S)
        if made.returncode:
            raise EnvError(f"docker import failed: {told(made)}")
    return image


def _is_there(image: str) -> bool:
    return docker("image", "inspect", image).returncode == 0


def _archive() -> bytes:
    """What boxes of bubblewrap begin with; the same bytes every time."""
    with tempfile.TemporaryDirectory() as scratch, io.BytesIO() as written:
        folder = Path(scratch, "base")
        make_base(folder, _OURS)
        with tarfile.open(fileobj=written, mode="w") as archive:
            for path in sorted(folder.rglob("*")):
                archive.add(path, arcname=str(path.relative_to(folder)), recursive=False, filter=_anonymous)
        return written.getvalue()


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = "root"
    member.mtime = 0
    return member
