"""Text of a reply -> facts that can be counted, by rules and without a model.

text        what a person sees of it: words, sentences, the words that carry the meaning
shape       how it is written: bold, lists, headings; friendly words; steps shown
numbers     the number it settles on, and whether that is right
answer      whether it is an answer at all: on topic, substance, refusal, question back, repetition

The same text gives the same facts on every machine, and each rule has its table of cases in the tests. None of them
knows who asked or what anybody prefers: evaluation/users.py weighs them.
"""

from openclaw_rl.evaluation.detectors.answer import asks_back, on_topic, refuses, repetition, substance
from openclaw_rl.evaluation.detectors.numbers import is_correct
from openclaw_rl.evaluation.detectors.shape import friendly, markup, steps, without_friendly
from openclaw_rl.evaluation.detectors.text import sentences, visible, words

__all__ = [
    "asks_back",
    "friendly",
    "is_correct",
    "markup",
    "on_topic",
    "refuses",
    "repetition",
    "sentences",
    "steps",
    "substance",
    "visible",
    "without_friendly",
    "words",
]
