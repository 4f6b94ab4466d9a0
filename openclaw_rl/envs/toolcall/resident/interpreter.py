"""A Python interpreter as a tool: JSON-RPC in the form of the Model Context Protocol, one message a line.

Variables, imports and functions stay from call to call. A call gives what the code prints, and the value of its last
line where that is an expression. Code that raises gives the end of the traceback. It ends with the box.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import linecache
import os
import sys
import traceback
from itertools import count

MAX_CHARS = 20_000
NAME = "python"

Json = object
_numbers = count(1)


class CappedText(io.StringIO):
    """What code prints, as far as anybody would read it."""

    def write(self, text: str) -> int:
        super().write(text[: max(0, MAX_CHARS - self.tell())])
        return len(text)


def run(code: str, variables: dict[str, Json]) -> tuple[str, bool]:
    """What came of the code, and whether it raised."""
    output = CappedText()
    name = f"<call {next(_numbers)}>"
    linecache.cache[name] = (len(code), None, code.splitlines(keepends=True), name)
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        try:
            _execute(code, name, variables)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # whatever code of the model raises, exits too, is a result
            output.write(_told(error, name))
            return output.getvalue(), True
    return output.getvalue(), False


def _execute(code: str, name: str, variables: dict[str, Json]) -> None:
    tree = ast.parse(code, name)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, name, "exec"), variables)  # noqa: S102  this is the tool, and it is in a box
    if isinstance(last, ast.Expr):
        value = eval(compile(ast.Expression(last.value), name, "eval"), variables)  # noqa: S307
        if value is not None:
            print(repr(value))  # noqa: T201


def _told(error: BaseException, name: str) -> str:
    """The traceback from the code on, without the frames of this file."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == name]
    shown = "".join(traceback.format_list(frames[-3:]))
    return shown + "".join(traceback.format_exception_only(error)).rstrip()


TOOL: dict[str, Json] = {
    "name": NAME,
    "description": "Run Python code. Variables stay for the next call. Print what you want to see.",
    "inputSchema": {
        "type": "object",
        "properties": {"code": {"type": "string", "description": "Python code"}},
        "required": ["code"],
        "additionalProperties": False,
    },
}


def answer(method: str, params: dict[str, dict[str, str]], variables: dict[str, Json]) -> Json:
    """The result of a request."""
    if method == "initialize":
        named = {"name": NAME, "version": "1"}
        return {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": named}
    if method == "tools/list":
        return {"tools": [TOOL]}
    text, raised = run(params["arguments"]["code"], variables)
    return {"content": [{"type": "text", "text": text or "(no output)"}], "isError": raised}


def main() -> None:
    """Answers requests until stdin ends. The code's own stdin and stdout are others than ours."""
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    variables: dict[str, Json] = {"__name__": "__main__"}
    for line in requests:
        request = json.loads(line)
        if "id" in request:
            result = answer(request["method"], request.get("params", {}), variables)
            answers.write(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}).encode() + b"\n")
            answers.flush()


if __name__ == "__main__":
    sys.setrecursionlimit(1500)
    main()
