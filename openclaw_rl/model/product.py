"""x·Wᵀ by the kernel that is fast on this machine. What is summed is the same; the order of the sum may differ.

torch multiplies float32 matrices on x86 with MKL, which runs AMD processors at a fraction of their speed. There two
other ways of asking are quicker, when no gradient is wanted. Milliseconds for all matrices of the embedded model on one
thread of an EPYC (Zen 4), where reading their 538 MB takes 20:

    rows               1    2    3    4    8   16   32
    x·Wᵀ by MKL       59  101  123   84   92  122  184
    W·xᵀ by MKL       38*  38   54   53  104  137  194      * with the row given twice
    x·Wᵀ by oneDNN    51   69   65   70   81  116  146

And small products by one thread: waking a second one takes longer than they do. A product of eight rows with an adapter
takes 12 µs; with two threads, of which one sleeps between two products, 130.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional

_FEW_ROWS = 4
_FEW_NUMBERS = 3072
"""Up to here in x, W·xᵀ is the quicker way: 12 KB of it stay in the nearest cache while W streams by."""


def choose_product(weight: Tensor) -> Callable[[Tensor, Tensor], Tensor]:
    """How to multiply by this matrix [out, in]: a function of x [rows, in] and the matrix."""
    dense = weight.device.type == "cpu" and weight.dtype == torch.float32
    return multiply_on_amd if dense and _mkl_is_slow() else functional.linear


def multiply_on_amd(x: Tensor, weight: Tensor) -> Tensor:
    """[rows, out], contiguous."""
    if torch.is_grad_enabled():  # neither way below is known to autograd as well as this one
        return functional.linear(x, weight)
    rows, in_features = x.shape
    if rows <= _FEW_ROWS and max(rows, 2) * in_features <= _FEW_NUMBERS:
        if rows == 1:  # alone it would go to MKL's slowest kernel; `repeat` would take five times as long as `cat`
            return torch.mm(weight, torch.cat((x, x)).t())[:, :1].t().contiguous()
        return torch.mm(weight, x.t()).t().contiguous()
    product: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, None, "none", [], "")
    return product


@cache
def _mkl_is_slow() -> bool:
    if not (torch.backends.mkl.is_available() and torch.backends.mkldnn.is_available()):
        return False
    try:
        return "AuthenticAMD" in Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return False


@contextmanager
def one_thread() -> Iterator[None]:
    """torch computes with one thread in here. Costs a microsecond."""
    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(num_threads)
