"""A small server of the Model Context Protocol, and one that misbehaves in every way a tool's name says.

    python mcp_server.py [paged] [endless] [sessionless] [banner] [asks] [version=X] [deaf]      over stdin and stdout

Stands alone, so that it runs in a box.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

NAMES = ("echo", "add", "fail", "refuse", "shapes", "structured", "count", "die", "hang", "flood", "garbage", "chatter")
SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}}


class McpServer:
    """Answers requests; `ask` sends one of its own and returns what it is told."""

    def __init__(self, *modes: str, ask: Callable[[dict[str, Any]], dict[str, Any]] | None = None) -> None:
        self.modes = set(modes)
        self.told: list[dict[str, Any]] = []
        self._ask = ask
        self._count = 0

    def respond(self, message: dict[str, Any]) -> dict[str, Any] | None:
        self.told.append(message)
        if "id" not in message or "method" not in message:
            return None
        try:
            made = {"result": self._result(message["method"], message.get("params", {}))}
        except LookupError as error:
            code, text, *data = error.args
            made = {"error": {"code": code, "message": text, **({"data": data[0]} if data else {})}}
        return {"jsonrpc": "2.0", "id": message["id"], **made}

    def _result(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        if method == "initialize":
            if "sessionless" in self.modes:
                raise LookupError(-32022, "no such revision", {"supported": ["2026-07-28"], "requested": "2025-11-25"})
            version = next((mode[8:] for mode in self.modes if mode.startswith("version=")), params["protocolVersion"])
            return {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": {"name": "fake"}}
        if "sessionless" in self.modes:
            assert params["_meta"]["io.modelcontextprotocol/protocolVersion"] == "2026-07-28"
        if method == "tools/list":
            return self._tools(int(params.get("cursor", "0")))
        if method == "tools/call":
            return self._call(params["name"], params.get("arguments", {}))
        raise LookupError(-32601, f"no method {method}")

    def _tools(self, start: int) -> dict[str, Any]:
        tools = [{"name": name, "description": f"It does {name}.", "inputSchema": SCHEMA} for name in NAMES]
        if "endless" in self.modes:
            return {"tools": tools[:1], "nextCursor": "0"}
        if "paged" in self.modes:
            page = tools[start : start + 5]
            return {"tools": page, **({"nextCursor": str(start + 5)} if start + 5 < len(tools) else {})}
        return {"tools": tools}

    def _call(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        if self._ask is not None and "asks" in self.modes:
            assert self._ask({"jsonrpc": "2.0", "id": "p", "method": "ping"})["result"] == {}
            refused = self._ask({"jsonrpc": "2.0", "id": "s", "method": "sampling/createMessage", "params": {}})
            assert refused["error"]["code"] == -32601
        if name == "refuse":
            raise LookupError(-32602, "the arguments are not to my taste")
        if name == "structured":
            return {"content": [], "structuredContent": {"degrees": 7}}
        if name == "shapes":
            return {"content": SHAPES}
        if name == "input":
            return {"resultType": "input_required", "inputRequests": {}}
        self._count += 1
        text = {"fail": "it went wrong", "count": str(self._count)}.get(name, arguments.get("text", ""))
        return {"content": [{"type": "text", "text": text}], "isError": name == "fail"}


SHAPES = [
    {"type": "text", "text": "one"},
    {"type": "image", "data": "AAAA", "mimeType": "image/png"},
    {"type": "resource", "resource": {"uri": "file:///a", "text": "two"}},
    {"type": "resource", "resource": {"uri": "file:///b", "blob": "AAAA", "mimeType": "audio/wav"}},
    {"type": "resource_link", "uri": "file:///c"},
]


def main() -> None:
    """Serves until stdin ends."""

    def write(message: object) -> None:
        sys.stdout.write(f"{json.dumps(message)}\n")
        sys.stdout.flush()

    def ask(request: dict[str, Any]) -> dict[str, Any]:
        write(request)
        answer: dict[str, Any] = json.loads(sys.stdin.readline())
        assert answer["id"] == request["id"]
        return answer

    server = McpServer(*sys.argv[1:], ask=ask)
    if "banner" in server.modes:
        print("Welcome!\n\n[1, 2]\n{broken", flush=True)
        print("a warning", file=sys.stderr, flush=True)
    if "deaf" in server.modes:
        time.sleep(600)
    for line in sys.stdin:
        message = json.loads(line)
        name = message.get("params", {}).get("name") if message.get("method") == "tools/call" else None
        if name == "die":
            print("so long", file=sys.stderr, flush=True)
            sys.exit(7)
        if name == "hang":
            time.sleep(600)
        if name == "flood":
            sys.stdout.write("x" * (10 << 20))
            sys.stdout.flush()
        if name == "garbage":
            print("what?\n" * 1000, flush=True)
        if name == "chatter":
            for _ in range(1000):
                write({"jsonrpc": "2.0", "method": "notifications/message", "params": {}})
        if (answer := server.respond(message)) is not None:
            write(answer)


if __name__ == "__main__":
    main()
