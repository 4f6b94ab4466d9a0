"""Stands in for the `docker` program: its containers are folders of this machine's programs, made with bubblewrap.

    STATE/images/NAME/     the files of an image         STATE/NAME/root     those of a container
    STATE/NAME/number      the process that the container lives as long as, once it runs

It does what our sandbox asks for, in the words of Docker's documentation, and refuses every option that it does not
know: a mistake in an option is found here, a mistake about what Docker does with it is not.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tarfile
from pathlib import Path

STATE = Path(os.environ.get("FAKE_DOCKER", "/nonexistent"))


def main(arguments: list[str]) -> int:
    with (STATE / "log").open("a") as log:
        log.write(json.dumps(arguments) + "\n")
    verb, rest = arguments[0], arguments[1:]
    if (STATE / "engine-is-down").exists():
        return fail("Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?")
    return VERBS[verb](rest)


def fail(why: str, code: int = 1) -> int:
    print(why, file=sys.stderr)
    return code


def version(_: list[str]) -> int:
    print("28.0.0")
    return 0


def image(rest: list[str]) -> int:
    assert rest[0] == "inspect"
    return 0 if (STATE / "images" / rest[1]).is_dir() else fail(f"Error: No such image: {rest[1]}")


def pull(rest: list[str]) -> int:
    assert rest[0] == "--quiet"
    return fail(f"Error response from daemon: manifest for {rest[1]} not found")


def load(rest: list[str]) -> int:
    """`docker import`: an archive of files as an image."""
    assert rest[0] == "-"
    made = STATE / "images" / rest[1]
    made.mkdir()
    with tarfile.open(fileobj=sys.stdin.buffer, mode="r|") as archive:
        archive.extractall(made, filter="tar")
    print("sha256:0")
    return 0


def run(rest: list[str]) -> int:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    for flag in ("--rm", "--interactive", "--init"):
        parser.add_argument(flag, action="store_true", required=True)
    for option in ("--name", "--label", "--user", "--workdir", "--entrypoint", "--pull", "--network"):
        parser.add_argument(option, required=True)
    parser.add_argument("--hostname")
    for option in ("--memory", "--memory-swap", "--pids-limit", "--cap-drop", "--security-opt"):
        parser.add_argument(option, required=True)
    for option in ("--ulimit", "--cap-add", "--env", "--mount"):
        parser.add_argument(option, action="append", default=[])
    parser.add_argument("image")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    asked = parser.parse_args(rest)
    beside = asked.network.partition("container:")[2]
    if beside and asked.hostname:
        return fail("conflicting options: hostname and the network mode", 125)
    home = STATE / asked.name
    shutil.copytree(STATE / "images" / asked.image, home / "root", symlinks=True)
    (home / "label").write_text(asked.label)
    (home / "env").write_text(json.dumps(asked.env))
    binds = []
    for mount in asked.mount:
        said = dict(part.partition("=")[::2] for part in mount.split(","))
        assert said["type"] == "bind"
        assert "readonly" in said
        binds += ["--ro-bind", said["source"], said["target"]]
    reads, writes = os.pipe()
    command = ["bwrap", "--unshare-all", "--die-with-parent", "--bind", str(home / "root"), "/"]
    if beside:
        number = (STATE / beside / "number").read_text()
        command = ["nsenter", "--target", number, "--user", "--net", "--preserve-credentials", *command, "--share-net"]
    if not asked.image.startswith("openclaw-rl-machine:"):  # the programs of other images are those of this machine
        command += ["--ro-bind", "/usr", "/usr"]
    command += ["--proc", "/proc", "--dev", "/dev", *binds, "--clearenv", *variables(asked.env)]
    command += ["--info-fd", str(writes), asked.entrypoint, *asked.command]
    with subprocess.Popen(command, pass_fds=(writes,)) as container:
        os.close(writes)
        with os.fdopen(reads) as info:
            (home / "number.new").write_text(str(json.loads(info.read())["child-pid"]))
        (home / "number.new").rename(home / "number")
        code = container.wait()
    shutil.rmtree(home, ignore_errors=True)
    return code


def variables(env: list[str]) -> list[str]:
    return [part for pair in env for part in ("--setenv", *pair.partition("=")[::2])]


def inside(name: str, command: list[str], *, env: list[str] | None = None, workdir: str = "/") -> list[str] | None:
    """The command line that runs a command in a container; None where it does not run."""
    number = STATE / name / "number"
    if not number.exists():
        return None
    said = [*json.loads((STATE / name / "env").read_text()), *(env or [])]
    enter = ["nsenter", "--target", number.read_text(), "--all", "--preserve-credentials"]
    return [*enter, "setsid", "--wait", "env", "-i", *said, "/bin/sh", "-c", 'cd "$0" && exec "$@"', workdir, *command]


def execute(rest: list[str]) -> int:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("-i", action="store_true")
    parser.add_argument("--env", action="append", default=[])
    parser.add_argument("--workdir", default="/")
    parser.add_argument("name")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    asked = parser.parse_args(rest)
    command = inside(asked.name, asked.command, env=asked.env, workdir=asked.workdir)
    if command is None:
        return fail(f"Error response from daemon: No such container: {asked.name}")
    code = subprocess.run(command, stdin=None if asked.i else subprocess.DEVNULL, check=False).returncode
    return code if code >= 0 else 128 - code


def copy(rest: list[str]) -> int:
    follows = rest[0] == "--follow-link"
    source, to = rest[1:] if follows else rest
    if to == "-":
        name, _, path = source.partition(":")
        folder, base = os.path.split(path.rstrip("/"))
        script = 'cd "$1" && [ -e "$2" ] || { echo "Could not find the file $2" >&2; exit 1; }; '
        script += 'at=$(readlink -f "$2") && cd "$(dirname "$at")" && exec tar -cf - "$(basename "$at")"'
        command = inside(name, ["/bin/sh", "-c", script, "tar", folder, base])
    else:
        name, _, path = to.partition(":")
        assert source.endswith("/.")
        command = inside(name, ["tar", "-xf", "-", "-C", path])
    if command is None:
        return fail(f"Error response from daemon: No such container: {name}")
    if to == "-":
        return subprocess.run(command, check=False).returncode
    with subprocess.Popen(["tar", "-cf", "-", "-C", source, "."], stdout=subprocess.PIPE) as packing:
        return subprocess.run(command, stdin=packing.stdout, check=False).returncode


def commit(rest: list[str]) -> int:
    name = f"sha256-{secrets.token_hex(8)}"
    shutil.copytree(STATE / rest[0] / "root", STATE / "images" / name, symlinks=True)
    print(name)
    return 0


def create(rest: list[str]) -> int:
    """A container that does not run."""
    assert rest[:2] == ["--quiet", "--"]
    source = STATE / "images" / rest[2]
    if not source.is_dir():
        return fail(f"Error response from daemon: pull access denied for {rest[2]}")
    name = secrets.token_hex(6)
    shutil.copytree(source, STATE / name / "root", symlinks=True)
    (STATE / name / "label").write_text("created=")
    print(name)
    return 0


def export(rest: list[str]) -> int:
    return subprocess.run(["tar", "-c", "-C", STATE / rest[0] / "root", "."], check=False).returncode


def inspect(rest: list[str]) -> int:
    assert rest[:2] == ["--format", "{{json .Config}}"]
    print(json.dumps({"Env": ["OF_IMAGE=yes"], "WorkingDir": "/work", "Entrypoint": None, "User": ""}))
    return 0


def listed(rest: list[str]) -> int:
    assert rest[:2] == ["--all", "--filter"]
    for home in STATE.glob("*/label"):
        print(home.parent.name, home.read_text().partition("=")[2])
    return 0


def remove(rest: list[str]) -> int:
    assert rest[:2] == ["--force", "--volumes"]
    home = STATE / rest[2]
    if not home.exists():
        return fail(f"Error response from daemon: No such container: {rest[2]}")
    if (home / "number").exists():
        os.kill(int((home / "number").read_text()), signal.SIGKILL)
    else:
        shutil.rmtree(home)
    return 0


VERBS = {
    "version": version,
    "image": image,
    "pull": pull,
    "import": load,
    "run": run,
    "exec": execute,
    "cp": copy,
    "commit": commit,
    "create": create,
    "export": export,
    "inspect": inspect,
    "ps": listed,
    "rm": remove,
}

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
