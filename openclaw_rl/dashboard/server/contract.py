"""Every route of the page's API, and from the shapes of their bodies and answers the types of the page's scripts.

    .venv/bin/python -m openclaw_rl.dashboard.server.contract > openclaw_rl/dashboard/api.d.ts

A test compares that file with what this writes, and each real answer with its shape.
"""

from __future__ import annotations

import ast
import inspect
import sys
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from types import NoneType, UnionType
from typing import Literal, Union, get_args, get_origin, get_type_hints

from openclaw_rl.views.page import conversations, corrections, history, left_out, live, machine, people, teaching

Method = Literal["GET", "POST"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """One route: what it takes and what it answers. `answer` None is a file to download; several are events."""

    method: Method
    path: str
    words: str
    answer: type | tuple[type, ...] | None
    body: type | None = None
    query: tuple[str, ...] = ()


_PAGED = ("after", "limit")

ROUTES: tuple[Shape, ...] = (
    Shape(
        method="POST",
        path="/ui/api/link",
        words="Exchanges a printed link, once, for the session cookie.",
        body=people.LinkBody,
        answer=people.Me,
    ),
    Shape(
        method="POST",
        path="/ui/api/sign-in",
        words="An API key for the session cookie.",
        body=people.KeyBody,
        answer=people.Me,
    ),
    Shape(method="POST", path="/ui/api/sign-out", words="Ends the session.", answer=people.Done),
    Shape(method="GET", path="/ui/api/me", words="Who is signed in.", answer=people.Me),
    Shape(
        method="GET",
        path="/ui/api/events",
        words="What changes, while the page is open. The data of every event is JSON; its name is in `event`, too.",
        answer=(live.LiveHello, live.LiveTurn, live.LiveCorrection, live.LiveVersion, live.LiveMachine),
    ),
    Shape(
        method="GET",
        path="/ui/api/sessions",
        words="Conversations, the one seen last first.",
        query=("user", *_PAGED),
        answer=conversations.ConversationPage,
    ),
    Shape(
        method="GET",
        path="/ui/api/sessions/{session}",
        words="The newest turns of a conversation; `before=NEXT` asks for earlier ones.",
        query=("before", "limit"),
        answer=conversations.ConversationDetail,
    ),
    Shape(method="GET", path="/ui/api/turns/{turn}", words="One turn.", answer=conversations.ChatTurn),
    Shape(
        method="POST",
        path="/ui/api/chat",
        words="Says something; the answer comes as events. An error before the first of them is a Failure.",
        body=conversations.SayBody,
        answer=(
            conversations.AnswerBegun,
            conversations.AnswerText,
            conversations.AnswerEnded,
            conversations.AnswerFailed,
        ),
    ),
    Shape(
        method="POST",
        path="/ui/api/turns/{turn}/feedback",
        words="A thumb, a sentence, or both.",
        body=corrections.OpinionBody,
        answer=corrections.Correction,
    ),
    Shape(
        method="GET",
        path="/ui/api/turns/{turn}/correction",
        words="What became of what was said; 404 where nothing was said.",
        answer=corrections.Correction,
    ),
    Shape(
        method="GET",
        path="/ui/api/lessons",
        words="Lessons, the newest first; with a filter a part may be short, and `next` still goes on.",
        query=("user", "session", "language", "verdict", "state", *_PAGED),
        answer=teaching.LessonPage,
    ),
    Shape(
        method="GET",
        path="/ui/api/lessons/{turn}",
        words="One lesson, without probabilities.",
        answer=teaching.LessonDetail,
    ),
    Shape(
        method="GET",
        path="/ui/api/lessons/{turn}/tokens",
        words="Its tokens with probabilities before and after, asked of the engine: may take seconds.",
        answer=teaching.LessonTokens,
    ),
    Shape(
        method="POST",
        path="/ui/api/lessons/{turn}/accept",
        words="The person agrees with the verdict: it is learned from, also where the judge was not sure.",
        answer=corrections.Correction,
    ),
    Shape(
        method="POST",
        path="/ui/api/lessons/{turn}/reject",
        words="Nothing is learned from it, and what was is taken back.",
        answer=teaching.UndoneText,
    ),
    Shape(
        method="POST",
        path="/ui/api/lessons/{turn}/hint",
        words="The person's own sentence in place of the hint; judged and credited again.",
        body=teaching.HintBody,
        answer=corrections.Correction,
    ),
    Shape(
        method="POST",
        path="/ui/api/lessons/{turn}/undo",
        words="Takes back what it taught.",
        answer=teaching.UndoneText,
    ),
    Shape(
        method="GET",
        path="/ui/api/left-out",
        words="What was not learned from, and why.",
        query=("user",),
        answer=left_out.LeftOutCounts,
    ),
    Shape(
        method="GET",
        path="/ui/api/versions",
        words="Versions of a line, the newest first.",
        query=("user", *_PAGED),
        answer=history.VersionPage,
    ),
    Shape(
        method="GET",
        path="/ui/api/versions/{version}",
        words="One version with all that was measured of it.",
        answer=history.VersionDetail,
    ),
    Shape(
        method="GET",
        path="/ui/api/versions/{version}/compare/{other}",
        words="Two versions of one line side by side; v0 is the base model.",
        query=("user",),
        answer=history.Comparison,
    ),
    Shape(
        method="POST",
        path="/ui/api/versions/{version}/rollback",
        words="Lets it answer again; v0 with `user` for the base model.",
        query=("user",),
        body=history.RollBackBody,
        answer=history.NowAnswers,
    ),
    Shape(
        method="GET",
        path="/ui/api/versions/{version}/export",
        words="Its adapter as a .tar file.",
        answer=None,
    ),
    Shape(method="GET", path="/ui/api/questions", words="Fixed questions to ask versions.", answer=history.Questions),
    Shape(
        method="POST",
        path="/ui/api/ask",
        words="One question to two versions; may take seconds.",
        query=("user",),
        body=history.AskBody,
        answer=history.TwoAnswers,
    ),
    Shape(
        method="GET",
        path="/ui/api/trends",
        words="Measures over the versions of a line, with alarms.",
        query=("user",),
        answer=history.Trends,
    ),
    Shape(method="GET", path="/ui/api/machine", words="The loop and what runs.", answer=machine.Machine),
    Shape(
        method="GET",
        path="/ui/api/settings",
        words="Every setting with its origin; the owner's alone.",
        answer=machine.SettingRows,
    ),
    Shape(method="GET", path="/ui/api/data", words="What is kept of a user.", query=("user",), answer=machine.YourData),
    Shape(
        method="GET",
        path="/ui/api/data/export",
        words="Everything of a user, as JSON lines.",
        query=("user",),
        answer=None,
    ),
    Shape(
        method="POST",
        path="/ui/api/data/forget",
        words="Deletes a conversation, or everything of the user, with what was learned from it.",
        query=("user",),
        body=machine.ForgetBody,
        answer=machine.ForgottenText,
    ),
)


def declarations() -> str:
    """The text of api.d.ts."""
    written: dict[str, str] = {}
    for route in ROUTES:
        for shape in shapes_of(route):
            _declare(shape, written)
    head = (
        "// Written by openclaw_rl/dashboard/server/contract.py from the shapes of views/page/; do not edit.\n"
        "// Times are seconds since 1970. Every POST has a JSON body ({} where none is named) and the header\n"
        "// Content-Type: application/json. Errors (status 400 and above) are a Failure.\n"
        "// Page after page: ?after=NEXT until next is null; limit is 1 to 200, 50 unless told.\n"
        "// Events are text/event-stream: `event: NAME`, `data: JSON`, an empty line; a line with : first is none.\n"
        "// Files: openclaw_rl/dashboard/ is served at /ui/ (index.html there); nothing of server/, no .py, no .ts.\n"
        "// `user`: whose line; without it, that of who is signed in. The owner may name any of Me.users, and *\n"
        "// for all of them where a list is asked for.\n"
        "// The session is a cookie; a POST needs the page's own Origin, which browsers send by themselves.\n"
    )
    _declare(people.Failure, written)
    return "\n".join((head, *written.values(), _table()))


def shapes_of(route: Shape) -> tuple[type, ...]:
    answers = route.answer if isinstance(route.answer, tuple) else (route.answer,)
    return tuple(one for one in (route.body, *answers) if one is not None)


def _table() -> str:
    """A type that names every route."""
    lines = ["export interface Routes {"]
    for route in ROUTES:
        query = f"?{'&'.join(f'{name}=' for name in route.query)}" if route.query else ""
        told = [f"body: {route.body.__name__}"] if route.body else []
        if isinstance(route.answer, tuple):
            told.append(f"events: {' | '.join(one.__name__ for one in route.answer)}")
        else:
            told.append(f"answer: {'Blob' if route.answer is None else route.answer.__name__}")
        lines.append(f"  /** {route.method} {route.path}{query} — {route.words} */")
        lines.append(f'  "{route.method} {route.path}": {{ {"; ".join(told)} }};')
    return "\n".join((*lines, "}", ""))


def _declare(shape: type, written: dict[str, str]) -> None:
    """The interface of a dataclass, behind those that it needs."""
    if shape.__name__ in written:
        return
    assert is_dataclass(shape), f"{shape.__name__} is no dataclass"
    hints = get_type_hints(shape)
    for inner in _dataclasses_in(hints.values()):
        _declare(inner, written)
    notes = _notes(shape)
    is_body = shape.__name__.endswith("Body")
    lines = [f"/** {_one_line(inspect.getdoc(shape))} */"] if _is_written(shape) else []
    lines.append(f"export interface {shape.__name__} {{")
    for field in fields(shape):
        if (note := notes.get(field.name)) is not None:
            lines.append(f"  /** {_one_line(note)} */")
        may_miss = "?" if is_body and field.default is not MISSING else ""
        lines.append(f"  {field.name}{may_miss}: {_ts(hints[field.name])};")
    written[shape.__name__] = "\n".join((*lines, "}", ""))


def _ts(hint: object) -> str:
    """A Python type as TypeScript writes it."""
    plain: Mapping[object, str] = {str: "string", bool: "boolean", int: "number", float: "number", NoneType: "null"}
    if hint in plain:
        return plain[hint]
    if isinstance(hint, type) and is_dataclass(hint):
        return hint.__name__
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Literal:
        return " | ".join(f'"{one}"' if isinstance(one, str) else str(one).lower() for one in inner)
    if origin in (Union, UnionType):
        return " | ".join(map(_ts, inner))
    if origin is tuple:
        of = _ts(inner[0])
        return f"({of})[]" if " " in of else f"{of}[]"
    if origin is dict:
        return f"Record<string, {_ts(inner[1])}>"
    raise TypeError(f"no way to write {hint} in TypeScript")


def _dataclasses_in(hints: object) -> Iterator[type]:
    for hint in hints:  # type: ignore[attr-defined]
        if isinstance(hint, type) and is_dataclass(hint):
            yield hint
        yield from _dataclasses_in(get_args(hint))


def _notes(shape: type) -> dict[str, str]:
    """The words below each field of a dataclass."""
    (body,) = ast.parse(textwrap.dedent(inspect.getsource(shape))).body
    assert isinstance(body, ast.ClassDef)
    found: dict[str, str] = {}
    for before, after in zip(body.body, body.body[1:], strict=False):
        is_words = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
        if isinstance(before, ast.AnnAssign) and isinstance(before.target, ast.Name) and is_words:
            found[before.target.id] = str(after.value.value)  # type: ignore[attr-defined]
    return found


def _is_written(shape: type) -> bool:
    """Whether it has words of its own: a dataclass without gets its signature."""
    return bool(shape.__doc__) and not str(shape.__doc__).startswith(f"{shape.__name__}(")


def _one_line(words: str | None) -> str:
    return " ".join((words or "").split())


if __name__ == "__main__":
    sys.stdout.write(declarations())
