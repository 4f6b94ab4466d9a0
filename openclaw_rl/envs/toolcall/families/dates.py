"""Questions about days. Level 1: one call, dates as numbers; 2: dates in words; 3: two calls, the second needs the
first. Held out: other questions, and those for weekdays."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import date, timedelta
from random import Random

from openclaw_rl.envs.toolcall.answers import Check, CheckName
from openclaw_rl.envs.toolcall.families.family import Family
from openclaw_rl.envs.toolcall.tasks import SUBMIT, AnswerGoal, Problem, calls_of
from openclaw_rl.envs.toolcall.tools.toolbox import Arguments, CallFault, OwnTool, parameters
from openclaw_rl.types import Json, Split, Tool

WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_FIRST = date(2000, 1, 1).toordinal()
_LAST = date(2040, 12, 31).toordinal()
_MOST_DAYS = 400_000

_ASKED: Mapping[Split, Mapping[str, tuple[str, ...]]] = {
    "train": {
        "after": (
            "Which date is {days} days after {day}?",
            "What day do we write {days} days after {day}?",
            "Add {days} days to {day}.",
        ),
        "between": (
            "How many days are there from {day} to {later}?",
            "Count the days between {day} and {later}.",
            "How many days is it from {day} until {later}?",
        ),
        "span": ("How many days are there from {day} to {days} days after {later}?",),
    },
    "held_out": {
        "after": ("A bill of {day} is due in {days} days. On which date is that?",),
        "before": ("Which date was {days} days before {day}?", "Go back {days} days from {day}. Which date is that?"),
        "weekday": ("Which day of the week is {day}?", "Is {day} a Monday, or which weekday is it?"),
        "weekday_after": ("Which weekday is {days} days after {day}?",),
    },
}
_KINDS: Mapping[Split, Mapping[int, tuple[str, ...]]] = {
    "train": {1: ("after", "between"), 2: ("after", "between"), 3: ("span",)},
    "held_out": {
        1: ("after", "before", "weekday"),
        2: ("after", "before", "weekday"),
        3: ("weekday_after",),
    },
}


def make_dates(draw: Random, split: Split, level: int) -> Iterator[Problem]:
    """Questions about days; the tools are always the same."""
    while True:
        kind = draw.choice(_KINDS[split][level])
        yield _question(draw, kind, draw.choice(_ASKED[split][kind]), in_words=level == 2)


def _question(draw: Random, kind: str, asked: str, *, in_words: bool) -> Problem:
    day = date.fromordinal(draw.randint(_FIRST, _LAST))
    later = day + timedelta(days=draw.randint(20, 300))
    days = draw.randint(5, 200)
    calls = _CALLS[kind](day, later, days)
    result = [_FUNCTIONS[name](arguments) for name, arguments in calls][-1]
    check: CheckName = "choice" if result in WEEKDAYS else "number" if result.isdigit() else "date"
    written = f"{day:%B} {day.day}, {day.year}" if in_words else day.isoformat()
    written_later = f"{later:%B} {later.day}, {later.year}" if in_words else later.isoformat()
    return Problem(
        question=asked.format(day=written, later=written_later, days=days),
        goal=AnswerGoal(reference=result, check=Check(name=check, choices=WEEKDAYS if check == "choice" else ())),
        solution=calls_of(*calls, (SUBMIT.name, {"answer": result})),
        tools=_TOOLS,
    )


def _after(day: date, days: int) -> tuple[str, dict[str, Json]]:
    return "add_days", {"date": day.isoformat(), "days": days}


_CALLS: Mapping[str, Callable[[date, date, int], list[tuple[str, dict[str, Json]]]]] = {
    "after": lambda day, later, days: [_after(day, days)],
    "before": lambda day, later, days: [_after(day, -days)],
    "between": lambda day, later, days: [("days_between", {"start": day.isoformat(), "end": later.isoformat()})],
    "weekday": lambda day, later, days: [("weekday", {"date": day.isoformat()})],
    "weekday_after": lambda day, later, days: [
        _after(day, days),
        ("weekday", {"date": (day + timedelta(days=days)).isoformat()}),
    ],
    "span": lambda day, later, days: [
        _after(later, days),
        ("days_between", {"start": day.isoformat(), "end": (later + timedelta(days=days)).isoformat()}),
    ],
}


def _day(arguments: Arguments, name: str) -> date:
    try:
        return date.fromisoformat(str(arguments[name]).strip())
    except ValueError:
        raise CallFault(
            f"`{name}` must be a date such as 2024-03-09 (year, month, day), not {arguments[name]!r}."
        ) from None


def _add_days(arguments: Arguments) -> str:
    days = int(arguments["days"])
    if abs(days) > _MOST_DAYS:
        raise CallFault(f"`days` must lie between -{_MOST_DAYS} and {_MOST_DAYS}.")
    try:
        return (_day(arguments, "date") + timedelta(days=days)).isoformat()
    except OverflowError:
        raise CallFault("That date lies outside of the years 1 to 9999.") from None


_FUNCTIONS: Mapping[str, Callable[[Arguments], str]] = {
    "add_days": _add_days,
    "days_between": lambda arguments: str((_day(arguments, "end") - _day(arguments, "start")).days),
    "weekday": lambda arguments: WEEKDAYS[_day(arguments, "date").weekday()],
}
_DATE = {"type": "string", "description": "For example 2024-03-09"}
_DAYS = {"type": "integer", "description": "How many days later; negative for earlier"}
_ABOUT: Mapping[str, tuple[str, dict[str, Json]]] = {
    "add_days": ("The date some days after a date.", {"date": _DATE, "days": _DAYS}),
    "days_between": ("How many days lie between two dates.", {"start": _DATE, "end": _DATE}),
    "weekday": ("The day of the week of a date.", {"date": _DATE}),
}
_TOOLS = tuple(
    OwnTool(tool=Tool(name=name, description=about, parameters=parameters(schema)), function=_FUNCTIONS[name])
    for name, (about, schema) in _ABOUT.items()
)

DATES = Family(
    name="dates",
    about="Dates and weekdays, reckoned with tools.",
    prompt="answer.txt",
    num_levels=3,
    make=make_dates,
)
