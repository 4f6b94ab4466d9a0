"""Every metric of a step, by name, and what it means. docs/tracking.md has the same table; a test compares them."""

from __future__ import annotations

from collections.abc import Mapping

MEANINGS: Mapping[str, str] = {
    "loss/total": "The loss that the step descends: the mean over the batch, all terms with their weights.",
    "loss/binary": "The score's term before its weight w_rl, mean over the samples that have one.",
    "loss/opd": "The hint's term before its weight w_opd, mean over the samples that have one.",
    "reward/mean": "Mean reward of the samples.",
    "reward/std": "Standard deviation of their rewards.",
    "gradient/norm": "Norm of the gradient before it was clipped.",
    "learning_rate": "Learning rate of the step.",
    "loss/value": "The critic's term before its weight, mean over the samples that have one.",
    "loss/anchor": "The hint's term of anchors, which grows as the policy leaves the base model there.",
    "loss/exercise": "The hint's term of exercises.",
    "policy/age": "The version that the step starts from minus the mean number of those that sampled the batch.",
    "sample/sampler_gap": "Mean absolute difference of the trainer's and the sampler's log-prob of a sampled token.",
    "sample/importance": "Mean truncated importance weight.",
    "sample/clipped_rl": "Share of tokens whose ratio was clipped in the score's term.",
    "sample/clipped_opd": "Share of tokens of the subset whose ratio was clipped in the hint's term.",
    "sample/overlap": "Tokens that are in the top-k sets of both student and teacher, mean over positions.",
    "sample/hint": "Index of the chosen hint, 0 for the shortest, mean over positions.",
    "sample/teacher_gap": "Mean absolute difference of teacher's and student's log-prob in the subset, weighted.",
    "sample/subset_size": "Tokens that distillation moves at a position.",
    "sample/value": "What the critic expects of an answer, mean over positions, where training.critic is on.",
    "sample/clipped_value": "Share of positions whose value was clipped, where training.value_clip is on too.",
    "sample/kl": "Divergence from the base model, where training.kl_coef is above 0.",
    "sample/entropy": "Entropy of the policy, where training.entropy_coef is above 0.",
    "step/samples": "Samples in the batch, replayed ones, anchors and exercises included.",
    "step/exercises": "Everyday questions on which a repeated wish was practised.",
    "step/tokens": "Tokens of all answers with their prompts, once more for each teacher.",
    "step/tokens_computed": "Tokens that were computed for them: what they have in common counts once.",
    "step/seconds": "How long the step took in the trainer.",
    "eval/capability": "Share of the capability items that the version gets right (evaluation.eval_frequency).",
    "eval/tokens": "Mean length of its answers to held-out questions.",
    "eval/on_topic": "How far these answers are about their question, 0 to 1.",
    "eval/repetition": "Share of three-word sequences in them that were there before.",
    "eval/refusals": "Share of them that refuse.",
    "eval/questions_back": "Share of them that only ask back.",
    "step/overhead_share": "Share of that time outside of forward and backward passes.",
}
