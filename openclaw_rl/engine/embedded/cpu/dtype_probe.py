"""Can this CPU run bfloat16? A child process tries, so that a SIGILL there kills nothing else.

Some virtual CPUs advertise AMX and then die of an illegal instruction at the first bfloat16 matrix product, without a
Python exception. The child (`python -m openclaw_rl.engine.embedded.cpu.dtype_probe`)
runs the kernels that the model uses.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Sequence

_COMMAND = (sys.executable, "-m", "openclaw_rl.engine.embedded.cpu.dtype_probe")


def why_not_bfloat16(command: Sequence[str] = _COMMAND, *, timeout_s: float = 60.0) -> str | None:
    """None if the child survived and computed right, else what happened to it."""
    return why_not("bfloat16", command, timeout_s=timeout_s)


def why_not(what: str, command: Sequence[str], *, timeout_s: float = 60.0) -> str | None:
    """None if the child `command` ends well, else what happened to the probe of `what`."""
    try:
        child = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout_s, check=False)
    except subprocess.TimeoutExpired:
        return f"the {what} probe did not finish in {timeout_s:g} s"
    except OSError as error:
        return f"the {what} probe could not be started: {error}"
    if child.returncode < 0:
        return f"the {what} probe died of {signal.Signals(-child.returncode).name}"
    if child.returncode > 0:
        last = child.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        return f"the {what} probe failed with exit status {child.returncode}{last and f': {last}'}"
    return None


def main() -> int:
    """Runs bfloat16 matrix products and attention, one row and many; the exit status says whether they are right."""
    import torch
    from torch.nn import functional

    torch.manual_seed(0)
    for rows in (1, 64):
        x, weight = torch.randn(rows, 576), torch.randn(1536, 576) / 24
        product = functional.linear(x.bfloat16(), weight.bfloat16()).float()
        query, key = torch.randn(1, 9, rows, 64), torch.randn(1, 9, 64, 64)
        attended = functional.scaled_dot_product_attention(query.bfloat16(), key.bfloat16(), key.bfloat16()).float()
        expected = functional.linear(x, weight), functional.scaled_dot_product_attention(query, key, key)
        for got, want in zip((product, attended), expected, strict=True):
            if not torch.allclose(got, want, atol=0.1, rtol=0.1):
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
