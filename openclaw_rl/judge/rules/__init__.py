"""The judge that needs no model, with its words. The rest of the system sees what is named here, and no part of it."""

from openclaw_rl.judge.rules.claims import Standing, is_spoofed, standing_of
from openclaw_rl.judge.rules.judge import RulesJudge
from openclaw_rl.judge.rules.matter import form_words

__all__ = ["RulesJudge", "Standing", "form_words", "is_spoofed", "standing_of"]
