"""Errors in Anthropic's shape, which names the field at fault in the message and has no code."""

from __future__ import annotations

import orjson

from openclaw_rl.gateway.dialects.wire import clipped

_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    413: "request_too_large",
    429: "rate_limit_error",
}


def error_body(message: str, *, status: int, param: str | None = None, code: str | None = None) -> bytes:
    """The JSON body of an error answer.

    A 503 is an `api_error`, which clients simply try again, by their own count and our Retry-After. For
    `overloaded_error` some of them switch to another model, and there is none.
    """
    kind = _TYPES.get(status, "invalid_request_error" if status < 500 else "api_error")
    text = f"{param[:200]}: {message}" if param and param not in message else message
    return orjson.dumps({"type": "error", "error": {"type": kind, "message": clipped(text)}})
