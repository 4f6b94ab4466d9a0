"""The sections of the settings tree that learn: `rollout`, `evaluation`, `training`, `release`, `tracking`.

Names are those of the public documentation that people come from (docs/from-the-seeds.md) wherever it names a
thing; formulas behind the training defaults are in arXiv 2603.10165.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    model_validator,
)

from openclaw_rl.config.fields import FsPath, Port, Secret, Section, Share, Text, Url, limited, setting
from openclaw_rl.types import Role, line_kind

JudgeName = Literal["auto", "heads", "rules", "endpoint", "self", "model", "function"]


def _as_chain(value: object) -> object:
    if isinstance(value, str):
        return tuple(name.strip() for name in value.split(","))
    return value


JudgeChain = Annotated[tuple[JudgeName, ...], BeforeValidator(_as_chain), Field(min_length=1)]
"""One name, or several in the order in which they are asked."""

_ONE_GPU = "this release judges and teaches on one GPU, or on a CPU (engine.device=cpu)"


class MessageClassification(Section):
    """What the messages after a reply count for, by their role. A role in neither list is not shown to the judge."""

    main_line: tuple[Role, ...] = setting(
        ("user", "assistant", "tool"), "Roles whose messages are feedback: a reply that one follows is judged."
    )
    side: tuple[Role, ...] = setting(
        ("system",), "Roles that the judge is shown beside the feedback; of these, tool results alone are judged too."
    )

    @model_validator(mode="after")
    def _name_each_role_once(self) -> Self:
        if twice := sorted(set(self.main_line) & set(self.side)):
            raise ValueError(f"{twice[0]} is in main_line and in side; keep it in one of them")
        return self


class RewardComputation(Section):
    """How a reward is made of what followed a turn."""

    type: Literal["next_state_feedback"] = setting("next_state_feedback", "The judge reads what followed the reply.")
    aggregation: Literal["majority"] = setting("majority", "The majority of the votes is the score.")
    num_samples: PositiveInt = setting(3, "Votes on each turn where evaluation.num_judges is null.")


class RolloutConfig(Section):
    """Sessions, and the episodes of agents in environments."""

    session_timeout_s: PositiveFloat = setting(3600.0, "A session ends this long after its last request.")
    collection_mode: Literal["async"] = setting("async", "Turns are collected while everything else goes on.")
    max_concurrent_sessions: PositiveInt | None = setting(
        None, "Most sessions open at once; a request that would open another gets a 429. null = no limit."
    )
    max_turns_in_memory: PositiveInt = setting(
        4096,
        "Turns of open sessions kept in memory, about 4 KiB and their ids each; beyond, those of the sessions asked "
        "longest ago are read back from the store when they go on.",
    )
    trajectory_format: Literal["multi_turn"] = setting("multi_turn", "A trajectory is a whole session.")
    message_classification: MessageClassification = setting(
        MessageClassification(), "What messages count for, by their role."
    )
    reward_computation: RewardComputation = setting(RewardComputation(), "How rewards are made.")
    min_turns: PositiveInt = setting(1, "Sessions with fewer turns are not trained on.")
    session_aware: bool = setting(True, "Credit may flow along a session; false = each turn stands alone.")
    num_workers: PositiveInt = setting(4, "Groups of attempts at one task that are collected at once.")
    parallel_envs: PositiveInt = setting(16, "Environments open at once, of all groups together.")
    max_batches_ahead: PositiveInt = setting(
        1, "A collection begins no group while so many batches of its samples wait for the end of a training step."
    )
    max_turns: PositiveInt = setting(10, "Most answers of the model in one attempt of the built-in agent.")
    max_steps: PositiveInt = setting(
        50, "Most tool calls in one attempt (training.max_steps limits the steps of the optimiser)."
    )
    harness: Text = setting(
        "builtin", "Who attempts tasks: builtin, a program that `openclaw-rl env list` names, or module:Class."
    )
    env_servers: tuple[Url, ...] = setting(
        (), "Servers of environments on other machines (`openclaw-rl env serve`); empty = this one."
    )
    env_key: Secret | None = setting(None, "Key of these servers.")
    function_path: Text | None = setting(
        None, "A harness of your own, package.module:name or file.py:name; it acts where no other is named."
    )
    task_type: Text | None = setting(None, "Only tasks of this kind, where an environment has several.")
    benchmark: Text | None = setting(None, "Set of tasks that is used where none is named, such as swe-bench-lite.")
    tools_config: FsPath | None = setting(None, "JSON file with the functions of the tool-call environment.")


class EvaluationConfig(Section):
    """The judge: what it is, how often it votes, and what it accepts as a hint."""

    judge: JudgeChain = setting(
        ("auto",),
        "Which judge reads what followed a reply; of several, the next where one abstains. auto = the endpoint or the "
        "model that is configured, if it gets known cases right, else heads on the served model or on n-grams.",
    )
    judge_model: Text | None = setting(None, "Model that the endpoint judge asks for.")
    judge_url: Url | None = setting(None, "Base URL of the endpoint judge, OpenAI-compatible.")
    judge_api_key: Secret | None = setting(None, "Key of the endpoint judge.")
    judge_path: FsPath | None = setting(
        None,
        "Weights of the model judge, a Hugging Face folder; a URL sets judge_url. A reward class is made with it.",
    )
    judge_function: Text | None = setting(
        None, "Your own reward function, package.module:name or file.py:name; chooses the function judge."
    )
    judge_gpu_ids: tuple[NonNegativeInt, ...] = setting(
        (), "GPUs of the engine on judge_path, by their numbers; empty = the first of engine.gpu_ids."
    )
    judge_gpus: NonNegativeInt | None = limited(None, "GPUs of the model judge.", _ONE_GPU, also=(1,))
    majority_voting: bool = setting(True, "Several votes, and the majority wins; false = the first valid vote.")
    num_judges: PositiveInt | None = setting(
        None, "Votes on each question; null = rollout.reward_computation.num_samples."
    )
    consensus_threshold: Share = setting(0.5, "Smallest share of the votes that a score needs; with less it abstains.")
    max_candidates: PositiveInt = setting(3, "Most hints kept for one turn.")
    judge_temperature: Annotated[float, Field(ge=0.0, le=2.0)] = setting(0.6, "Temperature of judges that are models.")
    judge_max_tokens: PositiveInt = setting(1024, "Longest answer of a judge that is a model.")
    judge_timeout_s: PositiveFloat = setting(60.0, "How long one vote may take.")
    judge_retries: NonNegativeInt = setting(2, "How often a vote is asked for again after a network failure.")
    judge_concurrency: PositiveInt = setting(4, "Most votes in progress at once.")
    judge_daily_budget: PositiveInt | None = setting(
        None, "Most votes asked of the endpoint in 24 hours; null = no limit."
    )
    judge_history_chars: PositiveInt = setting(
        8000, "Characters that a judge sees of the history, and of each long message."
    )
    max_attempts: PositiveInt = setting(8, "How often a turn is tried, at growing intervals, while the judge fails.")
    canaries: bool = setting(True, "Mix known cases into every batch, and do not believe a judge that gets them wrong.")
    redact: bool = setting(True, "Remove secrets from everything that is sent to an endpoint judge.")
    eval_frequency: PositiveInt | None = setting(
        None, "Evaluate the live version in the background after every so many steps of a user; null = never."
    )


Decay = Annotated[float, Field(ge=0.0, lt=1.0)]

METHODS = ("combine", "binary", "opd")


def _check_method(value: str) -> str:
    if value not in METHODS and ":" not in value:
        raise ValueError(f"expected {', '.join(METHODS)}, or package.module:name of a rule of your own")
    return value


Method = Annotated[str, AfterValidator(_check_method)]


class CloudConfig(Section):
    """Training and serving on somebody else's machines (docs/cloud.md)."""

    consent: bool = setting(
        False, "I know what leaves this machine; the first start on a terminal shows it and asks instead."
    )
    daily_budget: PositiveFloat | None = setting(
        None, "US dollars of a day (UTC) after which nothing is trained; chat goes on. Needs prices. null = no limit."
    )
    price_prefill: NonNegativeFloat | None = setting(None, "US dollars for a million tokens that are read.")
    price_cached: NonNegativeFloat | None = setting(
        None, "The same for tokens found in the service's cache; null = as price_prefill."
    )
    price_sample: NonNegativeFloat | None = setting(None, "The same for tokens that are sampled.")
    price_train: NonNegativeFloat | None = setting(None, "The same for tokens that are trained on.")
    sdk_path: FsPath | None = setting(
        None, "Folder that `pip install --target` put the service's SDK into; null = it is installed beside us."
    )


class TrainingConfig(Section):
    """The trainer: objective, optimiser, adapter, and the machines it runs on."""

    method: Method = setting(
        "combine",
        "What trains: scores (binary), hints (opd), or both (combine); or a rule of your own, as package.module:name "
        "or file.py:name.",
    )
    preset: Literal["default", "reference"] = setting(
        "default", "Our recipe, or the published one, formula for formula: it sets the defaults of the keys below."
    )
    backend: Literal["local", "fsdp", "tinker", "fireworks"] = setting(
        "local",
        "Where the trainer runs: one process here, one for each GPU of one machine or several with FSDP2, or tinker or "
        "fireworks, which serve what they train and choose engine.type.",
    )
    load_path: FsPath | None = setting(
        None, "Weights to serve and train, apart from model.checkpoint_path, which then has the tokenizer."
    )
    save_path: FsPath | None = setting(None, "Where versions are saved; null = in the data directory.")

    batch_size: PositiveInt = setting(8, "Samples in one step.")
    max_wait_s: NonNegativeFloat | None = setting(
        10.0,
        "A step starts this long after the first waiting sample even without a whole batch; null = whole batches only.",
    )
    pause_s: NonNegativeFloat = setting(
        2.0,
        "It starts sooner when its person has said nothing for so long, and all they said is judged; max_wait_s or "
        "more = never sooner.",
    )
    max_staleness: NonNegativeInt | None = setting(
        16, "Skip samples whose answers are more than this many versions old; null = none."
    )
    replay_max_age: NonNegativeInt = setting(
        4, "Fill a batch that is not full with samples of this many earlier steps; 0 = do not."
    )
    anchors: NonNegativeInt = setting(1, "Answers of the base model in each batch, against forgetting.")
    anchor_weight: NonNegativeFloat = setting(
        0.25, "Weight of each anchor, as a share of the mean weight of the lessons in the batch."
    )
    exercises: NonNegativeInt = setting(
        4,
        "Everyday questions added to each batch, to practise a wish about form that two conversations expressed.",
    )
    demonstrations: Literal["off", "turns", "turns_and_exercises"] = setting(
        "turns",
        "Learn from answers that the base model gives with the hint before it: to the request that the hint was about, "
        "and to the everyday questions of exercises.",
    )
    save_every: PositiveInt = setting(
        10, "Keep every so many versions for good; the last five, and the last five rejected, are kept as well."
    )
    seed: NonNegativeInt = setting(0, "Seed of every random choice in training.")
    task_batch_size: PositiveInt | None = setting(
        32, "Samples in one step of an environment's line; whoever sets batch_size sets this too. null = batch_size."
    )
    task_learning_rate: PositiveFloat | None = setting(
        1e-3, "Peak learning rate of an environment's line, likewise. null = learning_rate."
    )
    task_epochs: PositiveInt | None = setting(
        2, "Passes over each batch of an environment's line, likewise. null = num_epochs."
    )
    task_wait_s: NonNegativeFloat = setting(
        60.0, "A step of an environment's line starts without a whole batch when no sample has come for so long."
    )
    gradient_accumulation_steps: PositiveInt = setting(1, "Parts that a batch is computed in, to save memory.")
    learning_rate: PositiveFloat = setting(3e-4, "Peak learning rate; with use_lora=false the default is 1e-5.")
    warmup_steps: NonNegativeInt = setting(0, "Steps over which the learning rate rises to its peak.")
    max_steps: PositiveInt | None = setting(None, "Stop training after this many steps; null = never.")
    num_epochs: PositiveInt = setting(
        3, "Passes over each batch, with one optimiser step each; with use_lora=false the default is 1."
    )
    batching: Literal["tree", "plain"] = setting(
        "tree", "Compute shared prefixes once (tree), or each answer with its whole prompt and all logits (plain)."
    )
    micro_batch_tokens: PositiveInt | None = setting(
        None, "Most tokens computed at once; null = as many as memory holds."
    )
    adam_betas: tuple[Decay, Decay] = setting((0.9, 0.999), "AdamW's betas.")
    weight_decay: NonNegativeFloat = setting(0.0, "AdamW's weight decay.")
    clip_grad_norm: PositiveFloat = setting(1.0, "Largest norm of the gradient.")
    use_gradient_checkpointing: bool | None = setting(
        None, "Recompute activations instead of keeping them; null = where memory is short."
    )
    offload_activations: bool = setting(False, "Keep a GPU's activations in the host's memory.")

    binary_weight: NonNegativeFloat = setting(0.2, "Weight of the loss from scores, w_rl; 0 = train on hints alone.")
    opd_weight: NonNegativeFloat = setting(1.0, "Weight of the loss from hints, w_opd; 0 = train on scores alone.")
    ppo_clip_ratio: Annotated[float, Field(gt=0.0, lt=1.0)] = setting(
        0.2, "Lower clip of the probability ratio, epsilon."
    )
    ppo_clip_ratio_high: PositiveFloat | None = setting(
        0.28, "Upper clip of the probability ratio; null = the same as the lower."
    )
    critic: bool = setting(
        False,
        "Train a value head, and measure advantages against it; value_clip, value_clip_ratio or value_coef choose it.",
    )
    value_coef: PositiveFloat = setting(0.5, "Weight of the critic's loss.")
    value_clip: bool = setting(False, "Clip the critic's loss; chooses the critic.")
    value_clip_ratio: PositiveFloat = setting(0.2, "How far a value may move in one step; chooses value_clip.")
    gae_gamma: Share = setting(
        0.99, "Discount of later turns in a session, gamma; chooses training.advantage=session_gae."
    )
    gae_lambda: Share = setting(0.95, "Lambda of the session's GAE; chooses training.advantage=session_gae.")
    advantage: Literal["baseline", "raw", "group", "session_gae", "step_wise"] = setting(
        "baseline",
        "What a reward is measured against. A turn of a conversation: the running mean of its line (baseline), other "
        "answers to the same request (group), the rewards that followed (session_gae), nothing (raw, step_wise). A "
        "step of an attempt at a task: the other attempts (baseline, group), the scores of the steps that followed "
        "(session_gae), outcome plus step score at the same step of the other attempts (step_wise), nothing (raw).",
    )
    baseline_decay: Annotated[float, Field(gt=0.0, le=1.0)] = setting(
        0.05, "Weight of a new score in the running mean, once there are 1 / baseline_decay scores."
    )
    hint_placement: Literal["after_history", "last_user"] = setting(
        "after_history",
        "Where the hint stands in the teacher's prompt: right before the answer, or in the user's last message.",
    )
    unhinted_opd: bool = setting(
        False, "Distil scored answers that have no hint too, from the teacher on the same prompt."
    )
    logprob_temperature: PositiveFloat | None = setting(
        None, "Temperature at which log-probs are computed; null = each turn's own."
    )
    loss_per_token: bool = setting(
        False, "Average the loss over all tokens of a batch, instead of over each answer first."
    )
    truncated: Literal["hint", "score", "skip"] = setting(
        "hint",
        "Answers cut at their length limit: train on their hints alone, score them -1, or skip them.",
    )
    claims: Literal["skip", "learn"] = setting(
        "skip",
        "What to do with a user's claims about facts, and with scores that rest on "
        "them: skip them, or learn from them too.",
    )
    accepted_rewrites: bool = setting(
        True,
        "When a user accepts an answer after asking for a change, also train on it as the answer to the first request.",
    )
    max_user_share: Share = setting(1.0, "Largest share of a batch that one user may have.")
    max_line_share: Annotated[float, Field(gt=0.0, le=1.0)] = setting(
        1.0, "Largest share of the trainer's time for one person's line; `openclaw-rl keys limit` gives one its own."
    )
    max_session_share: Share = setting(1.0, "Largest share of a batch that one session may have.")
    kl_coef: NonNegativeFloat = setting(0.0, "Weight of the KL divergence from the base model; 0 costs nothing.")

    top_k: PositiveInt = setting(4, "Width of the student's and the teacher's top-k sets.")
    hint_selection: Literal["sequence_optimal", "token_optimal", "shortest"] = setting(
        "sequence_optimal", "Which hint teaches: the best for the answer, the best for each token, or the shortest."
    )
    subset_mode: Literal["student", "teacher", "overlap", "union"] = setting(
        "student", "Whose top-k tokens distillation moves."
    )
    distillation: Literal["topk", "token", "reverse_kl", "forward_kl"] = setting(
        "forward_kl",
        "How the teacher is distilled: the gaps of the top-k tokens, those of the sampled tokens, the reverse KL, or "
        "the forward KL to the teacher's own likeliest tokens.",
    )
    teacher_top_k: PositiveInt = setting(16, "How many of the teacher's likeliest tokens the forward KL looks at.")
    importance_clip: PositiveFloat | None = setting(2.0, "Largest importance weight of a token; null = no correction.")
    sequence_ratio: bool = setting(False, "One probability ratio for a whole answer (GSPO).")
    dual_clip: Annotated[float, Field(gt=1.0)] | None = setting(
        None, "Second clip of the loss, for negative advantages; null = none."
    )
    kl_type: Literal["k1", "k2", "k3"] = setting("k3", "Estimator of the KL divergence that kl_coef weighs.")
    entropy_coef: NonNegativeFloat = setting(0.0, "Weight of the entropy bonus; 0 costs nothing.")
    custom_loss: Text | None = setting(None, "Your own loss: package.module:name or file.py:name.")
    adv_diff_clip: NonNegativeFloat = setting(
        1.0, "Largest gap between the log-probs of teacher and student; 0 = no limit."
    )
    hint_extraction_model: Text | None = setting(
        None, "Model that the endpoint judge asks for hints; null = judge_model. Chooses that judge."
    )

    teacher: Literal["base", "current", "ema", "path"] | None = setting(
        None, "Whose weights read the hint; null = path where teacher_path or teacher_url is given, else base."
    )
    teacher_source: Literal["trainer", "engine"] = limited(
        "trainer",
        "Which worker computes the teacher.",
        "this release computes the teacher in the trainer, beside the student (megatron in the variable)",
    )
    teacher_path: FsPath | None = setting(
        None, "Hugging Face folder of the teacher; chooses teacher=path. A URL sets teacher_url."
    )
    teacher_url: Url | None = setting(
        None, "Server of the teacher, such as vLLM, whose /v1/completions knows prompt_logprobs; chooses teacher=path."
    )
    teacher_model: Text | None = setting(None, "Its model at teacher_url; null = the first that it lists.")
    teacher_api_key: Secret | None = setting(None, "What the server at teacher_url asks for as its key.")
    teacher_load_path: FsPath | None = setting(None, "Another name of teacher_path, which it sets.")
    teacher_temperature: PositiveFloat = setting(1.0, "Temperature of the teacher's distribution.")
    ema_decay: Share = setting(0.99, "Share of the moving average that stays at each step, where teacher is ema.")
    teacher_gpus: NonNegativeInt | None = limited(None, "GPUs of the teacher.", _ONE_GPU, also=(1,))

    use_lora: bool = setting(True, "Train a LoRA adapter; false = all weights.")
    lora_rank: PositiveInt = setting(16, "Rank of the adapter.")
    lora_alpha: PositiveFloat = setting(32.0, "Scale of the adapter, as alpha / rank.")
    lora_dropout: Annotated[float, Field(ge=0.0, lt=1.0)] = setting(0.0, "Dropout in front of the adapter.")
    lora_target_modules: tuple[Text, ...] = setting(("all-linear",), "Layers that get one: names, or all-linear.")

    num_gpus: NonNegativeInt | None = setting(None, "Most GPUs of this machine to use, with backend=fsdp; null = all.")
    actor_gpus: NonNegativeInt | None = setting(None, "Another name of gpus_per_node.")
    device: Literal["auto", "cpu", "cuda"] | None = setting(None, "Where the trainer computes; null = engine.device.")
    dtype: Literal["auto", "float32", "bfloat16"] | None = setting(
        None, "Precision that a GPU trains in; null = engine.dtype. A CPU trains in float32."
    )
    gpu_ids: tuple[NonNegativeInt, ...] = setting(
        (), "The GPU that trains, by its number, or with backend=fsdp those that do; empty = the first."
    )
    gpus_per_node: PositiveInt | None = setting(
        None, "Processes that train on each machine, with backend=fsdp: one for each GPU, or on a CPU."
    )
    ranks: Literal["started", "joined"] = setting(
        "started",
        "Processes of backend=fsdp: `up` starts them on this machine, or they are started elsewhere and join it.",
    )
    listen: Text | None = setting(
        None,
        "HOST:PORT where processes join with ranks=joined, and the key of DATA_DIR/trainer.key; null = the socket "
        "DATA_DIR/run/trainer.sock.",
    )
    nnodes: PositiveInt = setting(1, "Machines that train together, with backend=fsdp and ranks=joined.")
    node_rank: NonNegativeInt = setting(0, "Number of this machine among them, for `openclaw-rl worker trainer`.")
    master_addr: Text = setting("localhost", "Address of machine 0 among them.")
    master_port: Port = setting(6000, "Port of machine 0 among them.")
    tinker_api_key: Secret | None = setting(None, "Key of the Tinker backend.")
    tinker_project_id: Text | None = setting(None, "Project of the Tinker backend.")
    tinker_url: Url | None = setting(
        None, "A server of others that speaks Tinker's protocol, such as http://10.0.0.5:8000; null = Tinker itself."
    )
    fireworks_api_key: Secret | None = setting(None, "Key of the Fireworks backend.")
    fireworks_url: Url | None = setting(None, "Where Fireworks is asked; null = https://api.fireworks.ai.")
    cloud: CloudConfig = Field(default_factory=CloudConfig)

    @property
    def num_ranks(self) -> int:
        """Processes of backend=fsdp on one machine."""
        return self.gpus_per_node or self.actor_gpus or len(self.gpu_ids) or 1

    def for_line(self, line: str) -> Self:
        """As it is for this line. Attempts at tasks come by the dozen, in groups that are compared: their steps are
        larger. What keeps a person's chat as it was is no concern of theirs, and an attempt of an earlier version says
        little of the present one."""
        if line_kind(line) != "environment":
            return self
        own = {"batch_size": self.task_batch_size, "learning_rate": self.task_learning_rate}
        own |= {"num_epochs": self.task_epochs}
        chosen = {name: value for name, value in own.items() if value is not None}
        return self.model_copy(update={**chosen, "anchors": 0, "replay_max_age": 0})


class ReleaseConfig(Section):
    """What a new version must pass before it serves, and after."""

    max_kl: PositiveFloat = setting(1.0, "Largest KL divergence of a candidate from its parent, in nats per token.")
    max_kl_prompt: PositiveFloat = setting(
        2.0, "The same limit for any single prompt, the user's own prompts included."
    )
    max_length: Annotated[float, Field(gt=1.0)] = setting(
        1.5, "Most that its answers may grow, as a multiple of its parent's or the base model's, whichever are longer."
    )
    min_distinct: Share = setting(0.35, "Smallest share of distinct token pairs in its answers to the probes.")
    max_repetition: Share = setting(
        0.2, "How much more it may repeat itself than the base model, as a share of 3-grams."
    )
    min_entropy: Share = setting(0.25, "Smallest entropy of its answers, as a share of the base model's.")
    max_empty: Share = setting(0.1, "How many more empty answers it may give than the base model, as a share of all.")
    max_broken_calls: Share = setting(
        0.3,
        "How many more tool calls it may break than the base model, as a share of its answers where there are tools.",
    )
    max_refusals: Share = setting(
        0.25, "How many more refusals it may give than the base model, as a share of all answers."
    )
    max_questions: Share = setting(
        0.3, "How many more answers than the base model's may only ask a question back, as a share of all."
    )
    max_flattery: Share = setting(
        0.3, "How many more answers than the base model's may flatter the user, as a share of all."
    )
    max_off_topic: Share = setting(
        0.3, "How far its answers may fall below the base model's in keeping to the topic, from 0 to 1."
    )
    capability_items: NonNegativeInt = setting(
        400, "Questions with a known answer that a candidate is asked; 0 = none."
    )
    max_capability_loss: Share = setting(
        0.045,
        "How many fewer of these it may answer right than its parent, as a share of "
        "all; a loss that may be chance passes.",
    )
    max_capability_loss_from_base: Share = setting(
        0.06, "The same against the base model: what all versions together may lose."
    )
    replay_turns: NonNegativeInt = setting(8, "How many of the user's last turns a candidate is tried on.")
    replay_tokens: PositiveInt = setting(
        1024, "Turns whose prompt and reply together are longer than this, in tokens, are not replayed."
    )
    max_against: NonNegativeFloat = setting(
        0.1,
        "How far it may move against the user's reactions to these turns, in nats "
        "per token; what may be chance passes.",
    )
    held_out_tasks: NonNegativeInt = setting(
        16, "Tasks held out of training that a version of an environment's line attempts, and its parent; 0 = none."
    )
    max_task_loss: Share = setting(
        0.1, "How much less of these it may do than its parent, as a share; a loss that may be chance passes."
    )
    answer_tokens: PositiveInt = setting(128, "Longest answer to a probe, in tokens.")
    probe_tokens: Annotated[int, Field(ge=256)] = setting(
        256, "Tokens over which engine and trainer compare the change that a step made."
    )
    min_correlation: Share = setting(
        0.99,
        "Smallest correlation of the changes that engine and trainer measure, as a share of what rounding allows.",
    )
    probation: bool = setting(
        True,
        "Let a version answer after the quick check, while the full check goes on; false = only after the full check.",
    )
    watch: bool = setting(True, "Watch the live version, and roll back to its parent when people react worse to it.")
    watch_turns: PositiveInt = setting(50, "How many of the parent's last turns the live version is compared with.")
    alarm_odds: Annotated[float, Field(gt=1.0)] = setting(
        1000.0, "Roll back when a bad version would explain its turns this many times better than one like its parent."
    )


def _lower(value: object) -> object:
    return value.lower() if isinstance(value, str) else value


LogLevel = Annotated[Literal["debug", "info", "warning", "error"], BeforeValidator(_lower)]


class TrackingConfig(Section):
    """Logs and experiment tracking. Nothing here changes what is learned."""

    log_level: LogLevel = setting("info", "What is logged, never conversation text; debug also goes to the terminal.")
    record_enabled: bool = setting(False, "Write a JSON line for each judged turn and each step to DIR/records.")
    wandb_mode: Literal["disabled", "offline", "online"] = setting(
        "disabled", "Weights & Biases; offline keeps runs in DIR/wandb. A key chooses online."
    )
    wandb_api_key: Secret | None = setting(None, "Key of Weights & Biases; chooses tracking.wandb_mode=online.")
    wandb_project: Text = setting("openclaw-rl", "Project of the runs.")
    wandb_run_name: Text | None = setting(None, "Name of the run; null = openclaw-rl-METHOD.")
    tensorboard_dir: FsPath | None = setting(None, "Folder for TensorBoard files; null = none are written.")
    opentelemetry_endpoint: Url | None = setting(
        None, "OTLP collector over HTTP that gets GenAI spans, such as http://127.0.0.1:4318; null = none are made."
    )
    opentelemetry_content: bool = setting(
        False, "Put what is said, and judges' reasons, into the spans; never that of private conversations."
    )
