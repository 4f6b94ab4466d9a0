"""Fixed prompts whose answers should not change whatever a person teaches: short facts, sums, words, a line of code.

A step holds some of them to the base model's own answers. They are brief on purpose: a long answer would also hold the
style that people want to change.
"""

from __future__ import annotations

ANCHORS = (
    "What is the capital of Italy?",
    "What is 7 + 5?",
    "Translate the word 'water' into Spanish.",
    "Which planet is closest to the sun?",
    "Write the Python expression for the length of a list named items.",
    "What is the opposite of 'hot'?",
    "How many days are there in a week?",
    "Who wrote Romeo and Juliet?",
    "What colour do you get when you mix blue and yellow?",
    "What is the plural of 'mouse'?",
    "Name the largest ocean on Earth.",
    "What is 9 times 3?",
    "At what temperature in Celsius does water freeze?",
    "Spell the word 'necessary'.",
    "Which animal says 'meow'?",
    "What does HTML stand for?",
)
