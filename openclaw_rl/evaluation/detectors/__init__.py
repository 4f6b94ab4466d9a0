"""Text of a reply -> facts that can be counted, by rules and without a model.

text        what a person sees of it: words, sentences, the words that carry the meaning
shape       how it is written: bold, lists, headings; friendly words; steps shown
numbers     the number it settles on, and whether that is right; the verdict of a grading comment
answer      whether it is an answer at all: on topic, substance, refusal, question back, repetition

The same text gives the same facts on every machine, and each rule has its table of cases in the tests. None of them
knows who asked or what anybody prefers: evaluation/users.py weighs them.
"""

from openclaw_rl.evaluation.detectors.answer import asks_back, on_topic, refuses, repetition, substance
from openclaw_rl.evaluation.detectors.numbers import final_number, is_correct, verdict
from openclaw_rl.evaluation.detectors.shape import Markup, friendly, markup, steps, without_friendly
from openclaw_rl.evaluation.detectors.text import content_words, sentences, visible, words

__all__ = [
    "Markup",
    "asks_back",
    "content_words",
    "final_number",
    "friendly",
    "is_correct",
    "markup",
    "on_topic",
    "refuses",
    "repetition",
    "sentences",
    "steps",
    "substance",
    "verdict",
    "visible",
    "without_friendly",
    "words",
]
