"""Errors in OpenAI's shape, shared by its two dialects."""

from __future__ import annotations

import orjson

from openclaw_rl.gateway.dialects.wire import clipped

_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    413: "invalid_request_error",
    429: "rate_limit_error",
    503: "service_unavailable_error",
}


def error_body(message: str, *, status: int, param: str | None = None, code: str | None = None) -> bytes:
    """The JSON body of an error answer."""
    message = clipped(message)
    param = param[:200] if param else None
    kind = _TYPES.get(status, "invalid_request_error" if status < 500 else "server_error")
    return orjson.dumps({"error": {"message": message, "type": kind, "param": param, "code": code}})
