"""The settings tree: one frozen section per stage, in the order of the data, with every default.

Here are the sections that serve: `model`, `gateway`, `engine`, `store`; `learning.py` has the ones that learn.
Where a value comes from is the business of `sources.py`.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from openclaw_rl.config.fields import FsPath, Port, Regex, Reuse, Secret, Section, Text, Url, later, setting
from openclaw_rl.config.learning import (
    EvaluationConfig,
    ReleaseConfig,
    RolloutConfig,
    TrackingConfig,
    TrainingConfig,
)

MiB = 1024 * 1024


class ModelConfig(Section):
    """The model that is served and trained."""

    name: Text = setting(
        "smollm2-135m-instruct", "The embedded model's name, a local Hugging Face folder, or a hub name."
    )
    checkpoint_path: FsPath | None = setting(
        None, "Local Hugging Face folder with the weights; null = found by the name."
    )
    tokenizer_path: FsPath | None = setting(None, "Local folder with the tokenizer; null = beside the weights.")
    served_name: Text | None = setting(None, "The name that /v1/models lists; null = model.name.")
    cache_dir: FsPath = setting(
        "~/.cache/openclaw-rl/models", "Where fetched and converted models lie; XDG_CACHE_HOME moves it."
    )
    hub_token: Secret | None = setting(None, "Hugging Face token, for models on the hub that ask for one.")


class GatewayConfig(Section):
    """The HTTP side: where it listens, who may call, and the limits that apply before a request is parsed."""

    host: Text = setting("127.0.0.1", "Address to listen on; one that is not loopback needs require_key.")
    port: Port = setting(30000, "Port to listen on; 0 takes any free one.")
    require_key: bool = setting(True, "Refuse requests that carry no valid key.")
    api_key: Secret | None = setting(None, "One more key of the local user, beside the one in the data directory.")
    allowed_hosts: tuple[Text, ...] = setting((), "Host names that requests may use beside loopback and gateway.host.")
    allowed_origins: tuple[Text, ...] = setting((), "Web origins that browsers may call from, beside our own.")
    max_body_bytes: PositiveInt = setting(32 * MiB, "Largest request body.")
    max_header_bytes: PositiveInt = setting(32768, "Largest request line and headers together.")
    max_messages: PositiveInt = setting(4096, "Most messages in one request.")
    max_nesting: PositiveInt = setting(64, "Deepest nesting of JSON in a request.")
    max_choices: PositiveInt = setting(8, "Largest `n` of one request.")
    default_max_tokens: PositiveInt | None = setting(
        2048, "Answer length when the request names none, within what the window leaves; null = all of that."
    )
    max_tokens_limit: PositiveInt = setting(1_000_000, "Largest max_tokens that a request may name.")
    default_temperature: Annotated[float, Field(ge=0.0, le=2.0)] = setting(
        0.7, "Temperature when the request names none; 0.7 suits small models better than OpenAI's 1.0."
    )
    request_timeout_s: PositiveFloat = setting(30.0, "How long a client may take to send headers and body.")
    keepalive_s: PositiveFloat = setting(15.0, "A silent stream gets a comment line this often.")
    drain_s: NonNegativeFloat = setting(30.0, "How long running answers may still take at shutdown.")


class ScriptedReply(Section):
    """The scripted engine answers `reply` where the regular expression `match` is found in what the user said last."""

    match: Regex
    reply: str


class ScriptedConfig(Section):
    """The deterministic engine for tests, examples and dry runs."""

    script: FsPath | None = setting(None, "File with a list of {match, reply}; tried before the replies below.")
    replies: tuple[ScriptedReply, ...] = setting((), "What to answer: the first entry whose match fits wins.")
    tokens_per_s: NonNegativeFloat = setting(0.0, "Pace of the answer; 0 = as fast as possible.")


EngineType = Literal["embedded", "scripted", "vllm", "sglang", "tinker", "fireworks"]
AVAILABLE_ENGINES: tuple[EngineType, ...] = ("embedded", "scripted")
"""The engines of this release; `require_available` refuses to start with another."""


class EngineConfig(Section):
    """The policy being served."""

    type: EngineType = setting("embedded", "Which engine samples the tokens.")
    device: Literal["auto", "cpu", "cuda"] = setting("auto", "Where the embedded engine computes.")
    dtype: Literal["auto", "float32", "bfloat16"] = setting(
        "auto", "Precision of the weights, served and trained; auto = float32 on a CPU, bfloat16 on a GPU."
    )
    weights: Literal["auto", "float32", "quantised"] = setting(
        "auto",
        "The base on a CPU: float32, or the checkpoint's own 4- and 8-bit blocks; auto = blocks if there are any.",
    )
    threads: PositiveInt | None = setting(None, "CPU threads of the engine; null = torch decides.")
    max_active: PositiveInt = setting(8, "Most requests that the engine computes at once; the others wait in line.")
    max_queued: PositiveInt = setting(256, "Most requests that wait in line; more get a 503.")
    prefill_chunk: PositiveInt | None = setting(
        None, "Prompt tokens in one step, which running answers wait for; null = 256 on a CPU, 2048 on a GPU."
    )
    kv_bytes: PositiveInt | None = setting(
        None, "Memory for the keys and values of conversations; null = a share of what is free."
    )
    kv_after_update: Reuse = setting(
        "reuse(4)",
        "After an update recompute a session's prefix (exact), or keep a long one for n versions (reuse(n)).",
    )
    start_timeout_s: PositiveFloat = setting(120.0, "How long the engine's process may take to come up.")
    wait_s: NonNegativeFloat = setting(60.0, "How long a request waits for a dead engine before it gets a 503.")
    max_waiting: PositiveInt = setting(256, "Most requests that wait for the engine at once.")
    backoff_s: PositiveFloat = setting(0.5, "Pause before the first restart of a dead engine; doubles each time.")
    max_backoff_s: PositiveFloat = setting(30.0, "Longest pause between restarts.")
    context_window: PositiveInt | None = setting(
        None, "Most tokens of prompt and answer together; null = the model's own, 131072 for the scripted engine."
    )
    scripted: ScriptedConfig = setting(ScriptedConfig(), "Settings of the scripted engine.")
    colocate: bool = later(False, "Run engine and trainer in one process, on disjoint parts of one GPU.")
    num_gpus: NonNegativeInt | None = later(None, "GPUs that serve; null = what is there.")
    gpu_ids: tuple[NonNegativeInt, ...] = later((), "The GPUs that serve, by number; empty = any.")


class StoreConfig(Section):
    """The durable log and the directory around it."""

    data_dir: FsPath = setting("~/.openclaw-rl", "Everything that must survive: store, key, run files.")
    url: Url | None = setting(None, "SQLAlchemy URL of the database; null = SQLite in the data directory.")
    commit_window_ms: NonNegativeFloat = setting(
        0.0, "How long a commit waits for company; 0 = only for the commit before it."
    )
    redact: bool = setting(False, "Take secrets out of what is stored; a turn that held one is never trained on.")
    retention_days: PositiveFloat | None = setting(
        None, "Delete ended sessions this long after they were last seen; null = never."
    )
    checkpoint_bytes: PositiveInt = setting(MiB, "Written this much, the log is copied into the tables.")


class Config(Section):
    """Everything that can be set, in the order of the data."""

    # Factories: some defaults lie in the home directory, which may be unknown until settings are loaded.
    model: ModelConfig = Field(default_factory=ModelConfig)
    gateway: GatewayConfig = Field(default_factory=GatewayConfig)
    engine: EngineConfig = Field(default_factory=EngineConfig)
    store: StoreConfig = Field(default_factory=StoreConfig)
    rollout: RolloutConfig = Field(default_factory=RolloutConfig)
    evaluation: EvaluationConfig = Field(default_factory=EvaluationConfig)
    training: TrainingConfig = Field(default_factory=TrainingConfig)
    release: ReleaseConfig = Field(default_factory=ReleaseConfig)
    tracking: TrackingConfig = Field(default_factory=TrackingConfig)
