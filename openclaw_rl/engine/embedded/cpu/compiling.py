"""The text of an LLVM module -> machine code for this CPU, when a worker starts: no compiler is needed.

Also where the threads are that the code shares its work among: the OpenMP pool that torch has loaded, as a second pool
would fight with it for the cores. Where there is none (macOS), one thread does it all. Knows no torch.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from typing import Any


def compiled(text: Callable[[bool], str], *, wide: bool | None = None) -> Any:
    """What owns the machine code, which must outlive its callers; `get_function_address` tells where a function is.

    `text` is asked whether registers hold 16 floats. `wide` None means: as this CPU's do.
    """
    import llvmlite.binding as llvm  # 0.05 s and 170 MB, for quantised weights alone

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    features = llvm.get_host_cpu_features()
    require_fma(features)
    machine = llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=features.flatten(), opt=3
    )
    module = llvm.parse_assembly(text(bool(features.get("avx512f")) if wide is None else wide))
    module.verify()
    engine = llvm.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    return engine


def require_fma(features: Mapping[str, bool]) -> None:
    """Refuse an x86 CPU without fused multiply-add (before 2013): LLVM would call a library for each product."""
    if features.get("fma") is False:
        raise RuntimeError("this CPU has no fused multiply-add")


def openmp_fork() -> int:
    """The address of `GOMP_parallel` in the library that torch uses (Intel's and LLVM's have it too), or 0."""
    try:
        function = ctypes.CDLL(None).GOMP_parallel
    except (AttributeError, OSError):
        return 0
    return ctypes.cast(function, ctypes.c_void_p).value or 0
