"""The sections of the settings tree that learn: `rollout`, `evaluation`, `training`, `release`, `tracking`.

Names are those of the public documentation that people come from (docs/from-the-seeds.md) wherever it names a
thing; formulas behind the training defaults are in arXiv 2603.10165.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from openclaw_rl.config.fields import FsPath, Port, Secret, Section, Share, Text, Url, later, setting
from openclaw_rl.types import Role

JudgeName = Literal["rules", "endpoint", "self", "model", "function"]


def _as_chain(value: object) -> object:
    if isinstance(value, str):
        return tuple(name.strip() for name in value.split(","))
    return value


JudgeChain = Annotated[tuple[JudgeName, ...], BeforeValidator(_as_chain), Field(min_length=1)]
"""One name, or several in the order in which they are asked."""


class MessageClassification(Section):
    """Which roles carry the conversation and which accompany it."""

    main_line: tuple[Role, ...] = setting(("user", "assistant", "tool"), "Roles whose messages count as feedback.")
    side: tuple[Role, ...] = setting(("system",), "Roles that only accompany; what only they follow is no feedback.")


class RewardComputation(Section):
    """How a reward is made of what followed a turn."""

    type: Literal["next_state_feedback"] = setting("next_state_feedback", "What is judged.")
    aggregation: Literal["majority"] = setting("majority", "How votes become one score.")
    num_samples: PositiveInt = setting(3, "Votes on one turn, where evaluation.num_judges is null.")


class RolloutConfig(Section):
    """Sessions, and the episodes of agents in environments."""

    session_timeout_s: PositiveFloat = setting(3600.0, "A session without a request for this long is closed.")
    collection_mode: Literal["async"] = setting("async", "Turns are collected while everything else goes on.")
    max_concurrent_sessions: PositiveInt = later(100, "Episodes that run at once.")
    trajectory_format: Literal["multi_turn"] = setting("multi_turn", "A trajectory is a whole session.")
    message_classification: MessageClassification = setting(
        MessageClassification(), "Which roles carry the conversation."
    )
    reward_computation: RewardComputation = setting(RewardComputation(), "How rewards are made.")
    num_workers: PositiveInt = later(4, "Processes that run episodes.")
    max_turns: PositiveInt = later(10, "Most turns of one episode.")
    min_turns: PositiveInt = setting(1, "Sessions shorter than this are not trained on.")
    session_aware: bool = setting(True, "Credit may flow along a session; false = each turn stands alone.")
    parallel_envs: PositiveInt = later(16, "Environments open at once.")
    function_path: Text | None = later(None, "Import path of a rollout of your own.")
    task_type: Text | None = later(None, "Which kind of task the environment sets.")
    benchmark: Text | None = later(None, "Which set of tasks the environment takes, such as swe-bench-lite.")
    max_steps: PositiveInt = later(50, "Most steps of an agent in one task.")
    tools_config: FsPath | None = later(None, "JSON file with the tools of the tool-call environment.")


class EvaluationConfig(Section):
    """The judge: what it is, how often it votes, and what it accepts as a hint."""

    judge: JudgeChain = setting(("rules",), "Which judge reads next states; of several, the next when one abstains.")
    judge_model: Text | None = setting(None, "Model name that the endpoint judge asks for.")
    judge_url: Url | None = setting(None, "Base URL of the endpoint judge, OpenAI-compatible.")
    judge_api_key: Secret | None = setting(None, "Key of the endpoint judge.")
    judge_path: FsPath | None = setting(None, "Weights of the model judge, a Hugging Face folder.")
    judge_function: Text | None = setting(None, "Reward function of your own: package.module:name or file.py:name.")
    judge_gpus: NonNegativeInt | None = later(None, "GPUs of the model judge; null = what is left.")
    majority_voting: bool = setting(True, "Several votes, majority wins; false = the first valid vote.")
    num_judges: PositiveInt | None = setting(None, "Votes on each question; null = reward_computation.num_samples (3).")
    consensus_threshold: Share = setting(0.5, "Share of the votes that a score must exceed, else it abstains.")
    max_candidates: PositiveInt = setting(3, "Most hints kept for one turn.")
    judge_temperature: Annotated[float, Field(ge=0.0, le=2.0)] = setting(0.6, "Temperature of judges that are models.")
    judge_max_tokens: PositiveInt = setting(1024, "Longest answer of a judge that is a model.")
    judge_timeout_s: PositiveFloat = setting(60.0, "How long one vote may take.")
    judge_retries: NonNegativeInt = setting(2, "How often one vote is asked for again after a failure of the network.")
    judge_concurrency: PositiveInt = setting(4, "Most votes asked for at once.")
    judge_daily_budget: PositiveInt | None = setting(None, "Most votes of the endpoint in 24 hours; null = any.")
    judge_history_chars: PositiveInt = setting(8000, "How much of the history and of each long message a judge sees.")
    max_attempts: PositiveInt = setting(8, "How often a turn is tried, at growing intervals, when the judge fails.")
    canaries: bool = setting(True, "Mix known cases into every batch; a judge that gets them wrong is not believed.")
    redact: bool = setting(True, "Take secrets out of everything that is sent to an endpoint judge.")
    eval_frequency: PositiveInt | None = setting(
        None, "After every so many steps of a user what goes live is evaluated in the background; null = never."
    )


Decay = Annotated[float, Field(ge=0.0, lt=1.0)]


class TrainingConfig(Section):
    """The trainer: objective, optimiser, adapter, and the machines it runs on."""

    method: Literal["combine", "binary", "opd"] = setting("combine", "Which signals train: scores, hints, or both.")
    preset: Literal["default", "reference"] = setting(
        "default", "Our recipe, or the published one, formula for formula: defaults of the keys below."
    )
    backend: Literal["local", "fsdp", "tinker", "fireworks"] = later("local", "Where the trainer runs.")
    load_path: FsPath | None = later(None, "Weights that the trainer starts from; null = those being served.")
    save_path: FsPath | None = setting(None, "Where checkpoints go; null = the data directory.")

    batch_size: PositiveInt = setting(8, "Samples that fire a step.")
    max_wait_s: NonNegativeFloat | None = setting(
        10.0, "A step also fires this long after the first waiting sample; null = only with a whole batch."
    )
    max_staleness: NonNegativeInt | None = setting(
        16, "Samples of answers more than this many versions old are skipped; null = none are."
    )
    replay_max_age: NonNegativeInt = setting(
        4, "A batch that is not full is filled up with samples of this many steps before it; 0 = with none."
    )
    anchors: NonNegativeInt = setting(1, "Answers of the base model in each batch, against forgetting.")
    anchor_weight: NonNegativeFloat = setting(
        0.25, "Strength of each such answer, as a share of the mean strength of the lessons in the batch."
    )
    exercises: NonNegativeInt = setting(
        4, "Everyday questions in each batch on which a wish about the form, heard in two conversations, is practised."
    )
    save_every: PositiveInt = setting(
        10, "Every so many versions one is kept for good; and so are the last five, and the last five rejected."
    )
    seed: NonNegativeInt = setting(0, "Seed of everything that training draws.")
    gradient_accumulation_steps: PositiveInt = setting(1, "Parts that a batch is computed in.")
    learning_rate: PositiveFloat = setting(3e-4, "Peak learning rate; with use_lora=false the default is 1e-5.")
    warmup_steps: NonNegativeInt = setting(0, "Steps over which the learning rate rises to its peak.")
    max_steps: PositiveInt | None = setting(None, "Stop training after this many steps; null = never.")
    num_epochs: PositiveInt = setting(
        3, "How often each batch is gone through, with a step of the optimiser each time; with use_lora=false 1."
    )
    batching: Literal["tree", "plain"] = setting(
        "tree", "What answers have in common is computed once; plain: each with its whole prompt and all logits."
    )
    micro_batch_tokens: PositiveInt | None = setting(
        None, "Most tokens of samples that are computed at once; null = as many as memory holds."
    )
    adam_betas: tuple[Decay, Decay] = setting((0.9, 0.999), "Decay of AdamW's two averages.")
    weight_decay: NonNegativeFloat = setting(0.0, "Weight decay of AdamW.")
    clip_grad_norm: PositiveFloat = setting(1.0, "Largest norm of the gradient.")
    use_gradient_checkpointing: bool | None = setting(
        None, "Compute activations again instead of keeping them; null = as far as memory asks for it."
    )
    offload_activations: bool = setting(False, "Keep activations of a GPU in the host's memory.")

    binary_weight: NonNegativeFloat = setting(0.2, "Weight of the score's loss, w_rl; 0 trains on hints alone.")
    opd_weight: NonNegativeFloat = setting(1.0, "Weight of the hint's loss, w_opd; 0 trains on scores alone.")
    ppo_clip_ratio: Annotated[float, Field(gt=0.0, lt=1.0)] = setting(0.2, "Lower clip of the ratio, epsilon.")
    ppo_clip_ratio_high: PositiveFloat | None = setting(0.28, "Upper clip of the ratio; null = as the lower.")
    critic: bool = setting(False, "Learn what to expect of an answer, token by token, and measure advantages by it.")
    value_coef: PositiveFloat = setting(0.5, "Weight of the critic's loss.")
    value_clip: bool = setting(False, "Clip the critic's loss.")
    value_clip_ratio: PositiveFloat = setting(0.2, "How far a value may move where value_clip is on.")
    gae_gamma: Share = setting(0.99, "Discount of later turns of a session.")
    gae_lambda: Share = setting(0.95, "Decay of the session's advantage estimate.")
    advantage: Literal["baseline", "raw", "group", "session_gae", "step_wise"] = setting(
        "baseline", "What a score is measured against: the user's running mean, nothing, siblings, or the session."
    )
    baseline_decay: Annotated[float, Field(gt=0.0, le=1.0)] = setting(
        0.05, "Weight of a new score in the running mean, once there are 1 / baseline_decay of them."
    )
    hint_placement: Literal["after_history", "last_user"] = setting(
        "after_history", "Where the teacher reads the hint: beside the action, or in the last message of the user."
    )
    unhinted_opd: bool = setting(
        False, "Distil scored answers without a hint too, from the teacher on the very same prompt."
    )
    logprob_temperature: PositiveFloat | None = setting(
        None, "Temperature that log-probs are taken at; null = that of each turn."
    )
    loss_per_token: bool = setting(False, "Mean over all tokens of a batch, not over each answer's first.")
    truncated: Literal["hint", "score", "skip"] = setting(
        "hint", "Answers cut at their length limit: learned from by hints alone, scored -1, or left out."
    )
    claims: Literal["skip", "learn"] = setting(
        "skip", "What is said about the matter of an answer, and scores that rest on it: left out, or learned as well."
    )
    accepted_rewrites: bool = setting(True, "What the user accepts after a change also answers the first request.")
    max_user_share: Share = setting(1.0, "Largest share of one user in a batch.")
    max_session_share: Share = setting(1.0, "Largest share of one session in a batch.")
    kl_coef: NonNegativeFloat = setting(0.0, "Weight of the divergence from the base model; 0 costs nothing.")

    top_k: PositiveInt = setting(4, "Width of the student's and the teacher's sets of likely tokens.")
    hint_selection: Literal["sequence_optimal", "token_optimal", "shortest"] = setting(
        "sequence_optimal", "Which of several hints teaches."
    )
    subset_mode: Literal["student", "teacher", "overlap", "union"] = setting(
        "student", "Which tokens distillation moves."
    )
    distillation: Literal["topk", "token", "reverse_kl"] = setting("topk", "How the teacher's distribution is learned.")
    importance_clip: PositiveFloat | None = setting(2.0, "Largest importance weight of a sample; null = no correction.")
    sequence_ratio: bool = setting(False, "One probability ratio for a whole answer (GSPO).")
    dual_clip: Annotated[float, Field(gt=1.0)] | None = setting(None, "Second clip of the loss for bad answers.")
    kl_type: Literal["k1", "k2", "k3"] = setting("k3", "Estimator of the divergence that kl_coef weighs.")
    entropy_coef: NonNegativeFloat = setting(0.0, "Weight of the entropy bonus; 0 costs nothing.")
    custom_loss: Text | None = setting(None, "A loss of your own: package.module:name or file.py:name.")
    adv_diff_clip: NonNegativeFloat = setting(1.0, "Largest gap of teacher and student log-prob; 0 = no limit.")
    hint_extraction_model: Text | None = setting(
        None, "Model that the endpoint is asked for hints; null = judge_model."
    )

    teacher: Literal["base", "current", "ema", "path"] | None = setting(
        None, "Whose weights read the hint; null = path where teacher_path is given, else base."
    )
    teacher_source: Literal["trainer", "engine"] = later("trainer", "Which worker computes the teacher.")
    teacher_path: FsPath | None = setting(None, "Hugging Face folder of the teacher where teacher is path.")
    teacher_load_path: FsPath | None = later(None, "Teacher weights apart from that folder; null = in it.")
    teacher_temperature: PositiveFloat = setting(1.0, "Temperature of the teacher's distribution.")
    ema_decay: Share = setting(0.99, "How much of the slow average stays at each step, where teacher is ema.")
    teacher_gpus: NonNegativeInt | None = later(None, "GPUs of a teacher of its own; null = the trainer's.")

    use_lora: bool = setting(True, "Train a LoRA adapter; false = all weights.")
    lora_rank: PositiveInt = setting(16, "Rank of the adapter.")
    lora_alpha: PositiveFloat = setting(32.0, "Scale of the adapter, as alpha / rank.")
    lora_dropout: Annotated[float, Field(ge=0.0, lt=1.0)] = setting(0.0, "Dropout in front of the adapter.")
    lora_target_modules: tuple[Text, ...] = setting(("all-linear",), "Layers that get one: names, or all-linear.")

    num_gpus: NonNegativeInt | None = later(None, "GPUs of this node for everything together; null = all.")
    actor_gpus: NonNegativeInt | None = later(None, "GPUs that train; null = what is left.")
    gpu_ids: tuple[NonNegativeInt, ...] = setting((), "The GPUs that train, by number; empty = any.")
    gpus_per_node: PositiveInt | None = later(None, "Trainer processes on each node; null = one per GPU.")
    nnodes: PositiveInt = later(1, "Nodes that train together.")
    node_rank: NonNegativeInt = later(0, "Number of this node among them.")
    master_addr: Text = later("localhost", "Address of node 0.")
    master_port: Port = later(6000, "Port of node 0.")
    tinker_api_key: Secret | None = later(None, "Key of the Tinker back end.")
    tinker_project_id: Text | None = later(None, "Project of the Tinker back end.")
    fireworks_api_key: Secret | None = later(None, "Key of the Fireworks back end.")


class ReleaseConfig(Section):
    """How a new version proves itself before it serves."""

    max_kl: PositiveFloat = setting(1.0, "Farthest that a candidate may be from its parent, nats a token.")
    max_kl_prompt: PositiveFloat = setting(
        2.0, "The same of what it says itself to any single prompt, the user's own among them."
    )
    max_length: Annotated[float, Field(gt=1.0)] = setting(
        1.5, "Longest that its answers may be, as a multiple of its parent's or the base model's."
    )
    min_distinct: Share = setting(0.35, "Least share of different token pairs in a candidate's answers to the probes.")
    max_repetition: Share = setting(0.2, "How much more than the base model it may repeat itself, share of 3-grams.")
    min_entropy: Share = setting(0.25, "Least entropy of its answers, as a share of the base model's.")
    max_empty: Share = setting(0.1, "How many more of its answers than the base model's may be empty.")
    max_broken_calls: Share = setting(0.3, "How many more of its answers may be broken tool calls, where tools are.")
    max_refusals: Share = setting(0.25, "How many more of its answers may refuse.")
    max_questions: Share = setting(0.3, "How many more of its answers may only ask back.")
    max_flattery: Share = setting(0.3, "How many more of its answers may flatter who asks.")
    max_off_topic: Share = setting(0.3, "How much less than the base model's its answers may be on topic.")
    capability_items: NonNegativeInt = setting(400, "Questions with a known answer that it is asked; 0 = none.")
    max_capability_loss: Share = setting(0.045, "Most of these that it may lose to its parent, beyond chance.")
    max_capability_loss_from_base: Share = setting(0.06, "The same against the base model, over all versions.")
    replay_turns: NonNegativeInt = setting(8, "Last turns of the user that a candidate is tried on.")
    replay_tokens: PositiveInt = setting(1024, "Longest prompt and reply of these, in tokens.")
    max_against: NonNegativeFloat = setting(
        0.1, "How far it may go, in nats a token, against what the user said about these; beyond chance."
    )
    answer_tokens: PositiveInt = setting(128, "Longest answer of a version to a probe.")
    probe_tokens: Annotated[int, Field(ge=256)] = setting(
        256, "Tokens over which engine and trainer must agree about the change."
    )
    min_correlation: Share = setting(
        0.99, "Least correlation of what both say of it, of that which rounding leaves possible."
    )
    watch: bool = setting(True, "Watch the version that answers, and go back to its parent when it does badly.")
    watch_turns: PositiveInt = setting(50, "Last turns of the parent that the version is held against.")
    alarm_odds: Annotated[float, Field(gt=1.0)] = setting(
        1000.0, "Go back when its turns are so many times likelier for a bad version than for its parent."
    )


def _lower(value: object) -> object:
    return value.lower() if isinstance(value, str) else value


LogLevel = Annotated[Literal["debug", "info", "warning", "error"], BeforeValidator(_lower)]


class TrackingConfig(Section):
    """Logs and experiment tracking. Nothing here changes what is learned."""

    log_level: LogLevel = setting("info", "How much is logged; never conversation text.")
    record_enabled: bool = setting(False, "Also write a JSON line for each judged turn and step, in DIR/records.")
    wandb_mode: Literal["disabled", "offline", "online"] = setting(
        "disabled", "Weights & Biases; offline keeps runs in DIR/wandb."
    )
    wandb_api_key: Secret | None = setting(None, "Key of Weights & Biases, needed online.")
    wandb_project: Text = setting("openclaw-rl", "Project that runs are filed under.")
    wandb_run_name: Text | None = setting(None, "Name of the run; null = openclaw-rl-METHOD.")
    tensorboard_dir: FsPath | None = setting(None, "Where TensorBoard files go; null = none.")
