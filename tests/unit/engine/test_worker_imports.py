"""A worker needs torch, transformers, peft, safetensors, numpy, tokenizers, the standard library, and nothing else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import openclaw_rl

ROOT = Path(openclaw_rl.__file__).parents[1]

_GUARDED = """
import builtins, importlib, sys
modules, allowed = (argument.split(",") for argument in sys.argv[1:])
allowed = {*sys.stdlib_module_names, "openclaw_rl", *allowed}
real_import = builtins.__import__

def guarded(name, globals=None, locals=None, fromlist=(), level=0):
    importer = (globals or {}).get("__name__", "")
    if importer.startswith("openclaw_rl") and level == 0 and name.partition(".")[0] not in allowed:
        raise ImportError(f"{importer} imports {name}, which a worker does not have")
    return real_import(name, globals, locals, fromlist, level)

builtins.__import__ = guarded
for module in modules:
    importlib.import_module(module)
print("\\n".join(sys.modules))
"""
_PLAIN = """
import importlib, sys
importlib.import_module(sys.argv[1])
print("\\n".join(sys.modules))
"""


def imported(code: str, *arguments: str) -> set[str]:
    """The modules that a fresh interpreter has after running `code`."""
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.splitlines())


def test_the_embedded_worker_stands_on_torch_and_the_standard_library() -> None:
    names = ("__main__", "loading", "fallback", "cpu.dtype_probe")
    modules = ",".join(f"openclaw_rl.engine.embedded.{name}" for name in names)
    got = imported(_GUARDED, modules, "torch,transformers,peft,safetensors,numpy")
    assert "openclaw_rl.engine.worker.server" in got
    assert not {"aiohttp", "pydantic", "sqlalchemy", "uvloop", "orjson", "openclaw_rl.engine.worker.client"} & got


def test_the_scripted_worker_needs_a_tokenizer_only() -> None:
    got = imported(_GUARDED, "openclaw_rl.engine.scripted", "tokenizers")
    assert not {"aiohttp", "torch", "transformers", "pydantic", "orjson"} & got


@pytest.mark.parametrize("module", ["client", "supervisor", "hosts"])
def test_the_control_side_never_imports_torch(module: str) -> None:
    assert not {"torch", "transformers"} & imported(_PLAIN, f"openclaw_rl.engine.worker.{module}")
