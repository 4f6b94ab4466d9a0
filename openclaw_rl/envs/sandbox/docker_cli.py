"""One question to Docker's command line, and what it said where it failed. Blocking."""

from __future__ import annotations

import subprocess

ASK_S = 20.0
_TAIL = 2000


def docker(*arguments: str, data: bytes = b"", timeout_s: float = ASK_S) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(("docker", *arguments), input=data, capture_output=True, timeout=timeout_s, check=False)


def told(done: subprocess.CompletedProcess[bytes]) -> str:
    said = done.stderr.strip() or done.stdout.strip()
    return said[-_TAIL:].decode(errors="replace") or f"code {done.returncode}"
