"""The name of an image -> the root folder that a person made of it, `CACHE/images/NAME_TAG`.

    root/          the files of the image
    config.json    what `docker inspect` says of its configuration; without it the image sets no variables

An image without such a folder is copied from a Docker engine (`exporting`); where none runs it is refused, with the
commands that make it.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from openclaw_rl.envs.tasks.harbor.exporting import export_image
from openclaw_rl.errors import TaskError

_DEBIAN = re.compile(r"debian:(?P<suite>[a-z]+)(-slim|-[0-9]+(-slim)?)?")
_UBUNTU = {"20.04": "focal", "22.04": "jammy", "24.04": "noble"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Base:
    """The image that another stands on. `identity` changes when its folder is made anew."""

    root: Path
    identity: str
    env: Mapping[str, str] = field(default_factory=dict)
    workdir: str = ""


def folder_name(image: str) -> str:
    """`docker.io/library/debian:12` and `debian:12` are one image, as are `debian` and `debian:latest`."""
    name = image.removeprefix("docker.io/").removeprefix("library/")
    if "@" not in name and ":" not in name.rpartition("/")[2]:
        name += ":latest"
    return re.sub(r"[^A-Za-z0-9._-]", "_", name)


def find_base(image: str, images: Path) -> Base:
    """Blocking."""
    if image == "scratch":
        raise TaskError("an image FROM scratch holds no shell, so nothing can be done in a box of it")
    folder = images / folder_name(image)
    if not (folder / "root").is_dir() and not export_image(image, folder):
        raise TaskError(
            f"the image {image} is not here. Where Docker is, its files are copied once: {_exported(image, folder)}"
            f"{_bootstrapped(image, folder)}"
        )
    made = (folder / "root").stat()
    env, workdir = _config(folder / "config.json")
    identity = f"{folder.name} {made.st_ino} {made.st_mtime_ns} {sorted(env.items())} {workdir}"
    return Base(root=folder / "root", identity=identity, env=env, workdir=workdir)


def _exported(image: str, folder: Path) -> str:
    root, config, name = (shlex.quote(str(one)) for one in (folder / "root", folder / "config.json", image))
    return (
        f"mkdir -p {root} && docker create --name openclaw-image {name} && docker export openclaw-image | "
        f"tar -x -C {root} && docker inspect --format '{{{{json .Config}}}}' {name} > {config}; "
        "docker rm openclaw-image"
    )


def _bootstrapped(image: str, folder: Path) -> str:
    plain = folder_name(image).replace("_", ":")
    debian = _DEBIAN.fullmatch(plain)
    suite = debian["suite"] if debian else _UBUNTU.get(plain.removeprefix("ubuntu:"))
    if suite is None or suite == "latest":
        return ""
    root = shlex.quote(str(folder / "root"))
    return f" . Without Docker: mmdebstrap --variant=minbase --include=ca-certificates {suite} {root}"


def _config(file: Path) -> tuple[dict[str, str], str]:
    try:
        raw = json.loads(file.read_bytes())
    except FileNotFoundError:
        return {}, ""
    except (OSError, ValueError) as error:
        raise TaskError(f"{file} is not what `docker inspect` says of an image: {error}") from None
    raw = raw[0].get("Config") if isinstance(raw, list) and raw and isinstance(raw[0], dict) else raw
    if not isinstance(raw, dict):
        raise TaskError(f"{file} is not what `docker inspect` says of an image")
    if raw.get("Entrypoint") or raw.get("User") not in (None, "", "root", "0"):
        raise TaskError(f"{file}: an image with an entry point, or a user that is not root, runs in Docker alone")
    pairs = [one.partition("=") for one in raw.get("Env") or () if isinstance(one, str)]
    workdir = raw.get("WorkingDir")
    return {name: value for name, _, value in pairs}, workdir if isinstance(workdir, str) else ""
