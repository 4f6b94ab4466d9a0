"""Whom learning rate and batch size are tuned with, and nothing is measured with.

Of the shipped users only `brief` tells settings apart: what `plain` and `steps` want the base model does already, and
nobody teaches it to be friendly in twelve sessions. This one wants something like it, in other words.
"""

from __future__ import annotations

from openclaw_rl.evaluation import detectors
from openclaw_rl.evaluation.questions import Question
from openclaw_rl.evaluation.users import Person


class Compact(Person):
    """style = min(1, 45 / words) * min(1, 3 / (1 + sentences)): two sentences of 45 words together are 1."""

    name = "compact"
    preference = "Two sentences at most."
    complaints = (
        "I lost you halfway. Answer in two sentences at most.",
        "Too much text. Answer in two sentences at most.",
        "Make it two sentences at most.",
        "Please cut it down to two sentences.",
        "That is more than I can read. Answer in two sentences.",
        "Can you say that in two sentences?",
    )
    wish = "Answer my question in two sentences at most."
    max_words = 45

    def style(self, question: Question, reply: str) -> float:
        num_words, num_sentences = len(detectors.words(reply)), len(detectors.sentences(reply))
        return min(1.0, self.max_words / num_words) * min(1.0, 3 / (1 + num_sentences)) if num_words else 0.0
