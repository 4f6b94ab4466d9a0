"""What a reaction says by its words alone, without a model. The rest of the system sees what is named here, no part."""

from openclaw_rl.judge.rules.claims import Standing, is_spoofed, standing_of
from openclaw_rl.judge.rules.matter import form_part, form_words
from openclaw_rl.judge.rules.reactions import stated_in
from openclaw_rl.judge.rules.unknown import is_foreign
from openclaw_rl.judge.rules.verdict import verdict_of
from openclaw_rl.judge.rules.wording import is_unread, own_words

__all__ = [
    "Standing",
    "form_part",
    "form_words",
    "is_foreign",
    "is_spoofed",
    "is_unread",
    "own_words",
    "standing_of",
    "stated_in",
    "verdict_of",
]
