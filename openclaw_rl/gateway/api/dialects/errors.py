"""What went wrong -> the JSON body of an error answer: in OpenAI's shape, for its two dialects, and in Anthropic's."""

from __future__ import annotations

import orjson

from openclaw_rl.gateway.api.dialects.spoken import ErrorBody
from openclaw_rl.gateway.api.dialects.wire import clipped

_KINDS = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    429: "rate_limit_error",
}


def openai_error(message: str, *, status: int, param: str | None = None, code: str | None = None) -> bytes:
    other = "invalid_request_error" if status < 500 else "server_error"
    kind = {**_KINDS, 503: "service_unavailable_error"}.get(status, other)
    param = param[:200] if param else None
    return orjson.dumps({"error": {"message": clipped(message), "type": kind, "param": param, "code": code}})


def anthropic_error(message: str, *, status: int, param: str | None = None, code: str | None = None) -> bytes:
    """Names the field at fault in the message, and has no code.

    A 503 is an `api_error`, which clients simply try again, by their own count and our Retry-After. For
    `overloaded_error` some of them switch to another model, and there is none.
    """
    other = "invalid_request_error" if status < 500 else "api_error"
    kind = {**_KINDS, 413: "request_too_large"}.get(status, other)
    text = f"{param[:200]}: {message}" if param and param not in message else message
    return orjson.dumps({"type": "error", "error": {"type": kind, "message": clipped(text)}})


def error_body_of(path: str) -> ErrorBody:
    """How the clients of this path expect their errors."""
    speaks_messages = path == "/v1/messages" or path.startswith("/v1/messages/")
    return anthropic_error if speaks_messages else openai_error
