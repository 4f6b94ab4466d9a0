"""`openclaw-rl judge --file`: lines `{request, reply, next: [{role, content}, …]}` to verdicts, in their order.

Needs no store and no server: people check a judge on examples of their own. One bad line does not stop the others.
"""

from __future__ import annotations

import asyncio
import os
import stat
import sys
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, aclosing, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import orjson
from rich.console import Console
from rich.text import Text

from openclaw_rl.cli.screen import complain, json_text, make_console, one_line
from openclaw_rl.config import Config
from openclaw_rl.errors import OpenClawError
from openclaw_rl.judge.evidence import evidence_from_json
from openclaw_rl.protocols import Judge
from openclaw_rl.types import Json, Verdict
from openclaw_rl.views.lessons import verdict_json, verdict_label
from openclaw_rl.wiring.commands import open_judge

STANDARD_INPUT = Path("-")
_KEYS = ("request", "reply", "next", "tools", "feedback")
"""What is read of a line; people keep labels and remarks beside it."""
_MAX_LINE_BYTES = 64 * 2**20
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_NOTHING_FOLLOWED = Verdict(outcome="abstained", reason="nothing followed the reply")


class Unreadable(OpenClawError):
    """The file of lines cannot be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """What came of one line: a verdict, or else what is wrong with the line."""

    number: int
    id: Json = None
    verdict: Verdict | None = None
    error: str = ""

    def to_json(self) -> dict[str, Json]:
        named = {"line": self.number} | ({} if self.id is None else {"id": self.id})
        if self.verdict is None:
            return {**named, "error": self.error, "outcome": None, "score": None, "hints": [], "votes": []}
        return {**named, **verdict_json(self.verdict)}


def judge_file(config: Config, path: Path, *, as_json: bool) -> int:
    """Print a verdict for each line as soon as it and all before it are there; the exit status: 1 if a line was bad."""
    return asyncio.run(_judge_file(config, path, as_json=as_json))


async def _judge_file(config: Config, path: Path, *, as_json: bool) -> int:
    console, answers, outcomes, is_bad = make_console(), sys.stdout, Counter[str](), False
    async with AsyncExitStack() as around:
        if as_json:  # what a judge of somebody's own prints must not stand between the answers
            around.enter_context(redirect_stdout(sys.stderr))
        judge = await around.enter_async_context(open_judge(config))
        lines = _judge_lines(judge, path, num_at_once=config.evaluation.judge_concurrency)
        async with aclosing(lines):
            async for judged in lines:
                outcomes[verdict_label(judged.verdict) if judged.verdict else "bad lines"] += 1
                is_bad |= judged.verdict is None
                if as_json:
                    print(json_text(judged.to_json()), file=answers, flush=True)
                else:
                    console.print(_line_text(judged, console), soft_wrap=True)
                if judged.verdict is None:
                    complain(f"{path}:{judged.number}: {judged.error}")
        if not as_json:
            counts = ", ".join(f"{label}: {count}" for label, count in outcomes.items())
            console.print(Text(f"\n{judge.name}: {counts or 'no lines'}", "bold"))
    return 1 if is_bad else 0


async def _judge_lines(judge: Judge, path: Path, *, num_at_once: int) -> AsyncGenerator[Judged, None]:
    """The verdicts in the order of the lines; at most `num_at_once` are asked for at a time."""
    waiting: asyncio.Queue[asyncio.Task[Judged] | None] = asyncio.Queue(num_at_once)
    asked: set[asyncio.Task[Judged]] = set()

    async def read() -> None:
        number = 0
        try:
            async for raw in _read_lines(path):
                number += 1
                if raw.strip():
                    task = asyncio.create_task(_judge_line(judge, raw, number))
                    asked.add(task)
                    await waiting.put(task)
        finally:
            await waiting.put(None)

    reading = asyncio.create_task(read())
    try:
        while (task := await waiting.get()) is not None:
            yield await task
            asked.discard(task)
        await reading
    finally:
        for left in (reading, *asked):
            left.cancel()


async def _judge_line(judge: Judge, raw: bytes, number: int) -> Judged:
    name: Json = None
    try:
        line = orjson.loads(raw.removeprefix(_BYTE_ORDER_MARK))
        if isinstance(line, dict):
            name = line.get("id")
            line = {key: line[key] for key in _KEYS if key in line}
            if line.get("next") == [] and not line.get("feedback"):
                return Judged(number=number, id=name, verdict=_NOTHING_FOLLOWED)
        evidence = evidence_from_json(line)
    except ValueError as error:
        text = f"no JSON: {error}" if isinstance(error, orjson.JSONDecodeError) else str(error)
        return Judged(number=number, id=name, error=text)
    return Judged(number=number, id=name, verdict=await judge.judge(evidence))


async def _read_lines(path: Path) -> AsyncIterator[bytes]:
    """The lines of a file, or those of standard input as they come."""
    if path == STANDARD_INPUT and not stat.S_ISREG(os.fstat(sys.stdin.fileno()).st_mode):
        reader = asyncio.StreamReader(limit=_MAX_LINE_BYTES)
        await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        async for line in reader:
            yield line
        return
    try:
        with sys.stdin.buffer if path == STANDARD_INPUT else path.open("rb") as file:
            for line in file:
                yield line
    except OSError as error:
        raise Unreadable(f"{path} cannot be read: {error.strerror}") from error


def _line_text(judged: Judged, console: Console) -> Text:
    name = f"{judged.number}" if judged.id is None else f"{judged.number} ({judged.id})"
    head = Text.assemble((f"{one_line(name, 40):>6}  ", "dim"))
    if judged.verdict is None:
        return head.append("bad line", "red")
    verdict = judged.verdict
    style = {1: "green", -1: "red", None: "yellow"}.get(verdict.score, "")
    head.append(f"{verdict_label(verdict):<10}", style)
    room = max(20, console.width - len(head) - 4)
    head.append(one_line(verdict.reason, room if not verdict.hints else room // 2), "dim")
    if verdict.hints:
        head.append(f"  ▸ {one_line(verdict.hints[0], room // 2)}", "cyan")
    return head
