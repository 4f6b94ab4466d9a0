"""The name of an image -> its folder of `bases`, copied from a Docker engine, which fetches it where it must. Blocking.

It is what people are told to do by hand where no engine answers.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

from openclaw_rl.envs.sandbox.docker import DockerSandbox
from openclaw_rl.envs.sandbox.docker_cli import docker, told
from openclaw_rl.errors import TaskError

_EXPORT_S = 3600.0


def export_image(image: str, folder: Path) -> bool:
    """Whether `folder` is there now; false where there is no Docker. Another process may have been first."""
    if folder.exists() or DockerSandbox().lacks():
        return folder.exists()
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".exporting-") as begun:
        made = Path(begun, "image")
        (made / "root").mkdir(parents=True)
        container = _asked(image, "create", "--quiet", "--", image, "/bin/sh")
        try:
            _unpack(image, container, made / "root")
            (made / "config.json").write_text(_asked(image, "inspect", "--format", "{{json .Config}}", image))
        finally:
            docker("rm", "--force", "--volumes", container)
        try:
            made.rename(folder)
        except OSError:
            if not folder.is_dir():
                raise
    return True


def _asked(image: str, *question: str) -> str:
    try:
        done = docker(*question, timeout_s=_EXPORT_S)
    except subprocess.TimeoutExpired:
        raise TaskError(f"the image {image} was not there within {_EXPORT_S:g} s") from None
    if done.returncode:
        raise TaskError(f"Docker cannot make the image {image} available: {told(done)}")
    return done.stdout.decode().strip().splitlines()[-1]


def _unpack(image: str, container: str, root: Path) -> None:
    """With the owners that it has there, where we may give files to others."""
    owner = "--same-owner" if os.geteuid() == 0 else "--no-same-owner"
    unpack = ("tar", "-x", "--numeric-owner", owner, "--exclude=dev/*", "-C", str(root))
    with subprocess.Popen(("docker", "export", container), stdout=subprocess.PIPE) as exporting:
        unpacked = subprocess.run(unpack, stdin=exporting.stdout, capture_output=True, timeout=_EXPORT_S, check=False)
    if exporting.returncode or unpacked.returncode:
        raise TaskError(f"the files of the image {image} could not be copied: {told(unpacked)}")
