"""What a client says outright: about one turn (`/v1/feedback`), or that a session is over (`/v1/sessions/{id}/done` and
`/rollout`). Feedback is stored here; the judge reads it later.
"""

from __future__ import annotations

import time
from collections import Counter
from typing import Literal

import orjson
from pydantic import AliasChoices, BaseModel, ConfigDict, Field, ValidationError

from openclaw_rl.errors import RequestError
from openclaw_rl.gateway.answer.exchange import Gateway
from openclaw_rl.gateway.api.dialects.wire import read_object
from openclaw_rl.protocols import Store
from openclaw_rl.types import Feedback, split_turn_id, turn_id

MAX_NAME = 256
MAX_BYTES = 1 << 20
"""Of a body that is read here: the longest text, with every character escaped, and then some."""
_MAX_VALUES = 1_000

_RATINGS: dict[str, Literal[-1, 1]] = {"up": 1, "good": 1, "👍": 1, "down": -1, "bad": -1, "👎": -1}


class FeedbackBody(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    turn_id: str = Field(max_length=256, validation_alias=AliasChoices("turn_id", "turn"))
    score: int | None = Field(default=None, ge=-1, le=1)
    rating: str | None = None
    text: str = Field(default="", max_length=65_536)


def parse(raw: bytes, user: str) -> Feedback:
    """Reads `{"turn_id", "score" | "rating", "text"}`; whether the turn exists and is the user's is not known here."""
    given = read_object(raw, _MAX_VALUES)
    try:
        body = FeedbackBody.model_validate(given)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        param = ".".join(str(part) for part in first["loc"])
        fields = ", ".join(FeedbackBody.model_fields)
        raise RequestError(f"{param}: {first['msg']}; the fields are {fields}", param=param) from None
    if body.rating is not None and body.rating not in _RATINGS:
        raise RequestError(f"rating is one of {', '.join(_RATINGS)}", param="rating")
    if body.rating is not None and body.score is not None and body.score != _RATINGS[body.rating]:
        raise RequestError(f"score {body.score} and rating {body.rating} contradict each other", param="rating")
    if "\x00" in body.text:
        raise RequestError("text must not hold the NUL character", param="text")
    score = body.score if body.score is not None else _RATINGS.get(body.rating or "")
    try:
        session, index = split_turn_id(body.turn_id)
        return Feedback(
            session=session,
            index=index,
            user=user,
            given_at=time.time(),
            score=score,  # type: ignore[arg-type]  # pydantic has bounded it to -1, 0, 1
            text=body.text,
        )
    except ValueError as error:
        raise RequestError(str(error)) from None


async def put(store: Store, given: Feedback, giving: Counter[str], *, max_feedback: int) -> None:
    """Stores feedback, up to `max_feedback` pieces on one turn; `giving` counts those that are on their way."""
    name = turn_id(given.session, given.index)
    giving[name] += 1
    try:
        if await store.num_feedback(given.session, given.index) + giving[name] > max_feedback:
            raise RequestError(
                f"turn {name!r} has {max_feedback} pieces of feedback, as many as gateway.max_feedback allows",
                status=409,
                code="too_much_feedback",
            )
        await store.put_feedback(given)
    finally:
        giving[name] -= 1
        if not giving[name]:
            del giving[name]


class EndingBody(BaseModel):
    """Which session is over; other fields are ignored."""

    model_config = ConfigDict(extra="ignore", strict=True)

    session_id: str = Field(min_length=1)


def read_name(raw: bytes) -> str:
    """The session that the body names."""
    try:
        return EndingBody.model_validate(read_object(raw, _MAX_VALUES)).session_id
    except ValidationError:
        raise RequestError('say which session is over: {"session_id": "…"}', param="session_id") from None


async def end_named(gateway: Gateway, user: str, name: str) -> bytes:
    """Ends the user's open sessions of this name; one that is being answered ends with its last answer."""
    if len(name) > MAX_NAME:
        raise RequestError(f"a session's name has at most {MAX_NAME} characters", param="session_id")
    found = gateway.sessions.open_as(user, name)
    await gateway.take_back(found)
    for session in found:
        ended = gateway.sessions.end(session)
        if ended is not None:
            await gateway.end_session(ended)
    return orjson.dumps({"object": "session", "id": name, "ended": bool(found)})
