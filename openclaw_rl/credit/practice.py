"""A wish that a batch has from more than one conversation -> exercises: everyday questions with the wish behind them.

Who wants one short sentence says so about each answer, until answers are short. A step that learns it from these
questions alone learns much about them and little about the next; in exercises the wish stands behind questions that
nobody asked. Once is no wish: it may be meant for that answer alone. And only wishes about the form are practised: what
is about the matter of one question would teach nonsense behind another.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from openclaw_rl.credit.hinted import asked
from openclaw_rl.protocols import Renderer
from openclaw_rl.types import Exercise, Sample, Step

QUESTIONS = (
    "Why do horses wear shoes?",
    "How do I fold a paper boat?",
    "Explain what insurance is.",
    "Write a reminder to lock the back door.",
    "What should I think about before I buy a sofa?",
    "How does a battery store energy?",
    "Tell me about the history of paper.",
    "What are the benefits of walking every day?",
    "A bell rings 3 times an hour. How often does it ring in 8 hours?",
    "How can I wake up earlier?",
    "Describe a quiet morning in a village.",
    "Why do people keep pets?",
    "How do I write a good title for a report?",
    "What is the difference between weather and climate?",
    "Give me an idea for a weekend with children.",
    "How does a lighthouse work?",
    "Why do some metals rust?",
    "What does a good teacher do?",
    "How do I clean a wooden table?",
    "A plumber works 3 hours for 70 dollars an hour. What does he charge?",
    "Explain what a loan is.",
    "What happens when water boils?",
    "Suggest a game for a rainy afternoon.",
    "How do birds find their way?",
    "Why is breakfast said to be important?",
    "How do I read a map?",
    "What is a computer program?",
    "Write a line of encouragement for a marathon.",
    "Why does bread rise?",
    "What makes a story exciting?",
    "How are mountains formed?",
    "A dress takes 2 metres of cloth. How much cloth is needed for 6 dresses?",
    "How do I clean a window?",
    "What is the purpose of a museum?",
    "Why do we have different time zones?",
    "How can I get better at listening?",
    "Explain how a thermometer works.",
    "What is a good way to spend a free hour?",
    "How do I say no politely?",
    "Why do stars twinkle?",
    "Describe a day at the market.",
    "What does an engineer do?",
    "How do I find shoes that fit?",
    "Tell me something about whales.",
    "Why do people dance?",
    "How does soap clean our hands?",
    "What is a healthy lunch?",
    "A film lasts 95 minutes and started 40 minutes ago. How many minutes are left?",
)
"""What people may ask anybody. Practised on, and nothing else: no evaluation asks any of them."""

FormWords = Callable[[str], frozenset[str]]
"""The words of a hint for the form of an answer; none where it is about anything else."""


class Practice:
    """Finds exercises; the same for the same step and samples."""

    def __init__(
        self, renderer: Renderer, form_words: FormWords, *, num_exercises: int, questions: Sequence[str] = QUESTIONS
    ) -> None:
        self._renderer = renderer
        self._form_words = form_words
        self._num_exercises = min(num_exercises, len(questions))
        self._questions = questions

    def exercises(self, step: Step, samples: Sequence[Sample]) -> tuple[Exercise, ...]:
        """Empty where no wish was repeated."""
        wishes = repeated_wishes(samples, self._form_words)
        if not wishes:
            return ()
        drawn = random.Random(f"{step.seed} {step.line} {step.number}")
        chosen = drawn.sample(self._questions, self._num_exercises)
        found = (self._exercise(question, drawn.choice(wishes)) for question in chosen)
        return tuple(one for one in found if one is not None)

    def _exercise(self, question: str, wished: Sample) -> Exercise | None:
        made = asked(question, wished.candidates[0].hint, self._renderer)
        if made is None:
            return None
        return Exercise(prompt_ids=made[0], candidate=made[1], temperature=wished.temperature, w_opd=wished.w_opd)


def repeated_wishes(samples: Sequence[Sample], form_words: FormWords) -> list[Sample]:
    """The samples whose hint is about the form, and like one of another session."""
    said = [(one, form_words(one.candidates[0].hint)) for one in samples if one.w_opd and one.candidates]
    return [
        one
        for one, words in said
        if any(one.session != other.session and _is_same(words, others) for other, others in said)
    ]


def _is_same(one: frozenset[str], other: frozenset[str]) -> bool:
    """Whether half of the words of the shorter of two wishes are in the other one."""
    return bool(one and other) and 2 * len(one & other) >= min(len(one), len(other))
