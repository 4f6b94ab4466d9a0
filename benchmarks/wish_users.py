"""Two people whose wish the embedded model follows when it stands in the prompt; `learning.py --wishes` asks them."""

from __future__ import annotations

import re

from openclaw_rl.evaluation import detectors
from openclaw_rl.evaluation.questions import Question
from openclaw_rl.evaluation.users import Person

_EXAMPLE = re.compile(
    r"\b(?:for (?:example|instance)|as an example|e\.g\.|(?:here(?:'s| is)|one|an|another) example|examples?:"
    r"|such as|imagine|let's say|suppose)",
    re.IGNORECASE,
)
"""What says of something that it is an example."""


class Lists(Person):
    """style = min(1, items / 3), where items are those of a list."""

    name = "lists"
    preference = "Answers as a list."
    complaints = (
        "Please write it as a bulleted list.",
        "I'd like that as a list with bullet points.",
        "Can you put that into bullet points?",
        "Give me a list of bullet points, not paragraphs.",
        "Make it a bulleted list, please.",
        "I can't read blocks of text. Use bullet points.",
        "Write the answer as a list, one point per line.",
        "Bullet points, please.",
    )
    wish = "Answer my question as a bulleted list."
    kinds = ("open", "how_to")
    short_kinds = ("open", "how_to")
    content_from = 0.6

    def style(self, question: Question, reply: str) -> float:
        return min(1.0, detectors.markup(reply).list_items / 3)


class Examples(Person):
    """style = 1 where the reply gives an example and says so."""

    name = "examples"
    preference = "An example in every answer."
    complaints = (
        "Please give me an example.",
        "Add an example, please.",
        "I understand it better with an example. Give one.",
        "Can you add a concrete example?",
        "Too abstract. Give me an example.",
        "Where is the example? Please include one.",
        "Answer with an example, please.",
        "Show it with a concrete example.",
    )
    wish = "Answer my question and give an example."
    kinds = ("open", "how_to")
    short_kinds = ("open", "how_to")

    def style(self, question: Question, reply: str) -> float:
        return 1.0 if _EXAMPLE.search(reply) else 0.0
