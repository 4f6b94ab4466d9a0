"""Linear heads on n-grams, and on the hidden states of the served base model: what a reaction says of a reply."""

from openclaw_rl.judge.heads.judge import HeadsJudge, RulesJudge

__all__ = ["HeadsJudge", "RulesJudge"]
