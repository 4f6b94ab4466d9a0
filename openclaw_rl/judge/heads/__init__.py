"""Linear heads on the hidden states of the served base model, and on n-grams: what a reaction says of a reply."""

from openclaw_rl.judge.heads.judge import HeadsJudge

__all__ = ["HeadsJudge"]
