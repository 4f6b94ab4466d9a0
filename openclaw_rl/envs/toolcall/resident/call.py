"""Calls one function: its arguments are JSON on stdin, what it returns goes to stdout, as text or else as JSON.

    python call.py FOLDER package.module:name      modules may lie in FOLDER      file.py:name      a file in FOLDER

What the function prints is dropped. If it raises, the error is printed and the exit code is 1; `NOT_FOUND` says that
there is no such function.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import io
import json
import os
import sys
import traceback
from collections.abc import Callable

NOT_FOUND = 93


def load(folder: str, path: str) -> Callable[..., object]:
    """The function that a path names."""
    where, _, name = path.rpartition(":")
    sys.path.insert(0, folder)
    if where.endswith(".py"):
        spec = importlib.util.spec_from_file_location("tool_functions", os.path.join(folder, where))
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
    else:
        module = importlib.import_module(where)
    found: Callable[..., object] = getattr(module, name)
    return found


def main(folder: str, path: str) -> int:
    """The exit code; everything is printed by then."""
    dropped = io.StringIO()
    with contextlib.redirect_stdout(dropped), contextlib.redirect_stderr(dropped):
        try:
            function = load(folder, path)
        except BaseException:  # code of others may raise anything while it is imported
            said, code = traceback.format_exc(limit=-2), NOT_FOUND
        else:
            said, code = result(function, json.load(sys.stdin))
    sys.stdout.write(said)
    return code


def result(function: Callable[..., object], arguments: dict[str, object]) -> tuple[str, int]:
    """What a call says, and the exit code."""
    try:
        value = function(**arguments)
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str), 0
    except BaseException as error:  # whatever it raises is what the call came to
        return "".join(traceback.format_exception_only(error)).strip(), 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]))
