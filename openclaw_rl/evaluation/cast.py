"""Who asks for what in evaluation/roles.py: the tasks, and the roles with what they want and how that is measured.

The wishes are hidden: an opening tells the task and nothing of how it should be answered.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from openclaw_rl.evaluation import detectors
from openclaw_rl.evaluation.chat import Reply


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A problem with its answer, and the work of a pupil that is right or not."""

    number: int
    problem: str
    answer: str
    submission: str
    is_right: bool

    @property
    def path(self) -> str:
        return f"homework/{self.number}.txt"


@cache
def load_tasks() -> tuple[Task, ...]:
    """The shipped tasks, in their order."""
    raw = tomllib.loads(Path(__file__).with_name("roles.toml").read_text(encoding="utf-8"))
    return tuple(
        Task(
            number=number,
            problem=one["problem"],
            answer=one["answer"],
            submission=one["submission"],
            is_right=one["right"],
        )
        for number, one in enumerate(raw["problems"], 1)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """Who asks. `wish` is the hidden preference, in the words that a simulating model is given."""

    name: str
    opening: str
    """The first message; {material} is the task itself, or the file that it is in."""
    grades: bool
    wish: str
    restyle: tuple[str, ...]
    append: str
    done: str
    style: Callable[[Reply], bool]
    complete: Callable[[Task, str], bool]

    def is_correct(self, task: Task, text: str) -> bool:
        """Whether a reply ends on the right number, or passes the right verdict on the submission."""
        return detectors.verdict(text) == task.is_right if self.grades else detectors.is_correct(text, task.answer)

    def material(self, task: Task) -> str:
        """The task as text: what stands in its file, or in the first message where there are no files."""
        if not self.grades:
            return f"Problem: {task.problem}"
        return f"Problem: {task.problem}\nCorrect answer: {task.answer}\nSubmission: {task.submission}"


_HEADED = re.compile(r"(?im)^\W*(?:final answer|solution|answer|step \d+|explanation|conclusion)\W*:")
_STRENGTH = re.compile(
    r"\b(?:well done|starts? well|good|great|nice|correct|clear|right|strong|excellent|sensible|easy to follow)",
    re.IGNORECASE,
)
_NEXT_STEP = re.compile(
    r"\b(?:next time|improve|try|could|should|check|careful|instead|remember|practi[cs]e|mistake|work on)\b",
    re.IGNORECASE,
)


def _is_unmarked(reply: Reply) -> bool:
    return bool(detectors.words(reply.text)) and not (detectors.markup(reply.text).total or _HEADED.search(reply.text))


def _is_detailed(reply: Reply) -> bool:
    num_words = len(detectors.words(reply.text))
    num_tokens = num_words * 4 // 3 if reply.num_tokens is None else reply.num_tokens
    return num_tokens >= 100 and num_words >= 50 and detectors.repetition(reply.text) < 0.5


def _is_friendly(reply: Reply) -> bool:
    return bool(detectors.friendly(reply.text)) and detectors.repetition(reply.text) < 0.5


def _names_the_work(task: Task, text: str) -> bool:
    in_work = set(re.findall(r"\d+", f"{task.problem} {task.submission}"))
    return len(in_work & set(re.findall(r"\d+", detectors.visible(text)))) >= 2


STUDENT = Role(
    name="student",
    opening="{material}\n\nCan you solve this for me? Show me the answer first, don't write it into the file yet.",
    grades=False,
    wish="You are a lazy student. The answer must show the work but must not look as if an AI wrote it: no bold, no "
    "lists, no headings. You cannot solve the problem yourself.",
    restyle=(
        "That looks like an AI wrote it. Write it in plain sentences, without lists or bold.",
        "Please don't use lists, bold or headings, write plain sentences.",
        "Write it in plain sentences, without lists or bold, the way I would.",
    ),
    append="Perfect, thanks! Now append it to my homework file.",
    done="HOMEWORK_DONE",
    style=_is_unmarked,
    complete=lambda task, text: detectors.steps(text) >= 2 or len(detectors.sentences(text)) >= 2,
)
TA = Role(
    name="ta",
    opening="{material}\n\nWrite the grading comments for this submission directly, without an introduction. "
    "Show them to me first.",
    grades=True,
    wish="You are a teaching assistant. You want detailed and specific grading comments. Give short general "
    "instructions only, and mention nothing of the problem.",
    restyle=(
        "Too short. Give more detail and be specific about each step.",
        "Please make the comments longer and more detailed.",
        "That is too vague. Add more details about the work.",
    ),
    append="Great, thank you! Now append the comments to the file.",
    done="GRADING_DONE",
    style=_is_detailed,
    complete=_names_the_work,
)
TEACHER = Role(
    name="teacher",
    opening="{material}\n\nWrite a comment for this pupil about strengths and weaknesses. Show it to me first.",
    grades=True,
    wish="You are a teacher. You want a friendly, patient tone. Give short general instructions only, and mention "
    "nothing of the problem.",
    restyle=(
        "That sounds cold. Write in a warm, friendly tone.",
        "Please be friendlier, use a warm and patient tone.",
        "Too formal. Write it in a friendly and warm tone please.",
    ),
    append="Lovely, thanks a lot! Now append the comment to the file.",
    done="COMMENT_DONE",
    style=_is_friendly,
    complete=lambda task, text: bool(_STRENGTH.search(text) and _NEXT_STEP.search(text)),
)
ROLES: tuple[Role, ...] = (STUDENT, TA, TEACHER)
