"""`/v1/sessions/{id}/done` and `/rollout`: a client says that a session is over, in a request of its own.

Nothing is said to the model then, so no header could tell it. What is not open any more is over already.
"""

from __future__ import annotations

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from openclaw_rl.errors import RequestError
from openclaw_rl.gateway.exchange import Gateway

MAX_NAME = 256


class Body(BaseModel):
    """Who says why, or what follows, may: nobody reads it."""

    model_config = ConfigDict(extra="ignore", strict=True)

    session_id: str = Field(min_length=1)


def read_name(raw: bytes) -> str:
    """The session that the body names."""
    try:
        return Body.model_validate(orjson.loads(raw)).session_id
    except orjson.JSONDecodeError as error:
        raise RequestError(f"the body is not valid JSON: {error}", code="invalid_json") from None
    except ValidationError:
        raise RequestError('say which session is over: {"session_id": "…"}', param="session_id") from None


async def end_named(gateway: Gateway, user: str, name: str) -> bytes:
    """Ends what is open of this user under this name. What is being answered ends with its last answer."""
    if len(name) > MAX_NAME:
        raise RequestError(f"a session's name has at most {MAX_NAME} characters", param="session_id")
    found = gateway.sessions.open_as(user, name)
    for session in found:
        ended = gateway.sessions.end(session)
        if ended is not None:
            await gateway.end_session(ended)
    return orjson.dumps({"object": "session", "id": name, "ended": bool(found)})
