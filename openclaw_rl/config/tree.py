"""The settings tree: one frozen section per stage, in the order of the data, with every default.

Here are the sections that serve: `model`, `gateway`, `engine`, `store`; `learning.py` has the ones that learn.
Where a value comes from is the business of `sources.py`.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from openclaw_rl.config.fields import FsPath, LoraRank, Port, Regex, Reuse, Secret, Section, Text, Url, limited, setting
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
        "~/.cache/openclaw-rl/models", "Where fetched and converted models are kept; XDG_CACHE_HOME moves it."
    )
    hub_token: Secret | None = setting(None, "Hugging Face token, for hub models that need one.")


class GatewayConfig(Section):
    """The HTTP side: where it listens, who may call, and the limits that apply before a request is parsed."""

    host: Text = setting("127.0.0.1", "Address to listen on; one that is not loopback needs require_key.")
    port: Port = setting(30000, "Port to listen on; 0 takes any free one.")
    require_key: bool = setting(True, "Refuse requests that carry no valid key.")
    api_key: Secret | None = setting(None, "A second key for the local user, beside the one in the data directory.")
    allowed_hosts: tuple[Text, ...] = setting((), "Host names that requests may use, beside loopback and gateway.host.")
    allowed_origins: tuple[Text, ...] = setting((), "Web origins that browsers may call from, beside our own.")
    page: bool = setting(True, "Serve the web page at /ui/.")
    max_body_bytes: PositiveInt = setting(
        32 * MiB, "Largest request body; a model with a small window accepts less: 8 MiB, and 64 bytes for each token."
    )
    max_reading_bytes: PositiveInt = setting(
        256 * MiB, "Bodies that are read and rendered at one time, all together; one user may have half of it."
    )
    requests_per_minute: PositiveInt | None = setting(
        None, "Requests a minute of one key that has no limit of its own; beyond, a 429. null = no limit."
    )
    tokens_per_minute: PositiveInt | None = setting(
        None, "Tokens a minute, of prompts and answers together, of one key that has no limit of its own."
    )
    max_header_bytes: PositiveInt = setting(32768, "Largest request line and headers together.")
    max_values: PositiveInt = setting(200_000, "Most JSON values in one request.")
    max_messages: PositiveInt = setting(4096, "Most messages in one request.")
    max_tools: PositiveInt = setting(1024, "Most tools in one request.")
    max_feedback: PositiveInt = setting(64, "Most pieces of feedback on one turn.")
    max_nesting: PositiveInt = setting(64, "Deepest JSON nesting in a request.")
    max_choices: PositiveInt = setting(8, "Largest `n` of one request.")
    default_max_tokens: PositiveInt | None = setting(
        2048, "Answer length when the request names none; null = all that the context window has left."
    )
    max_tokens_limit: PositiveInt = setting(1_000_000, "Largest max_tokens that a request may name.")
    default_temperature: Annotated[float, Field(ge=0.0, le=2.0)] = setting(
        0.7, "Temperature when the request names none; 0.7 suits small models better than OpenAI's 1.0."
    )
    request_timeout_s: PositiveFloat = setting(30.0, "How long a client may take to send headers and body.")
    keepalive_s: PositiveFloat = setting(15.0, "How often a silent stream gets a comment line.")
    drain_s: NonNegativeFloat = setting(30.0, "How long running answers may take to finish at shutdown.")


class ScriptedReply(Section):
    """The scripted engine answers `reply` where the regular expression `match` is found in what the user said last."""

    match: Regex
    reply: str


class ScriptedConfig(Section):
    """The deterministic engine for tests, examples and dry runs."""

    script: FsPath | None = setting(None, "File with a list of {match, reply}, tried before engine.scripted.replies.")
    replies: tuple[ScriptedReply, ...] = setting((), "What to answer: the first entry whose match fits.")
    tokens_per_s: NonNegativeFloat = setting(0.0, "Speed of the answer; 0 = as fast as possible.")


class VllmConfig(Section):
    """vLLM, in an environment of its own: `make engine-vllm` makes one."""

    python: FsPath = setting(
        "~/.cache/openclaw-rl/engines/vllm/bin/python",
        "The interpreter that has vLLM; where the default is missing, `vllm` on the PATH is looked for.",
    )
    tensor_parallel: PositiveInt = setting(1, "GPUs over which each layer is spread.")
    gpu_memory_utilization: Annotated[float, Field(gt=0.0, le=1.0)] = setting(
        0.9, "Share of a GPU's memory that it takes; less where a trainer shares the GPU."
    )
    max_loras: PositiveInt = setting(8, "Most versions whose requests are computed in one batch; others wait.")
    max_cpu_loras: PositiveInt = setting(32, "Most versions that it keeps in memory; others it reads again.")
    eager: bool | None = setting(
        None, "Start without compiling and capturing graphs: sooner, and slower answers; null = only on a CPU."
    )
    arguments: tuple[Text, ...] = setting((), "Further arguments of the server, such as --quantization=fp8.")


class SglangConfig(Section):
    """SGLang, in an environment of its own."""

    python: FsPath = setting(
        "~/.cache/openclaw-rl/engines/sglang/bin/python",
        "The interpreter that has SGLang; where the default is missing, `sglang` on the PATH is looked for.",
    )
    tensor_parallel: PositiveInt = setting(1, "GPUs over which each layer is spread.")
    mem_fraction_static: Annotated[float, Field(gt=0.0, le=1.0)] | None = setting(
        None, "Share of a GPU's memory for weights and KV cache; null = SGLang decides."
    )
    max_loras: PositiveInt = setting(8, "Most versions whose requests are computed in one batch; others wait.")
    max_loaded_loras: PositiveInt = setting(32, "Most versions that it keeps; a further one is refused.")
    arguments: tuple[Text, ...] = setting((), "Further arguments of the server.")


EngineType = Literal["embedded", "scripted", "vllm", "sglang", "tinker", "fireworks"]
AVAILABLE_ENGINES: tuple[EngineType, ...] = ("embedded", "scripted", "vllm", "sglang", "tinker", "fireworks")
"""The engines of this release."""
FOREIGN_ENGINES: tuple[EngineType, ...] = ("vllm", "sglang")
"""Servers of others, started here or at a URL."""
CLOUDS: tuple[EngineType, ...] = ("tinker", "fireworks")
"""Services that serve what they trained themselves: engine.type and training.backend are the same."""


class EngineConfig(Section):
    """The policy being served."""

    type: EngineType = setting("embedded", "Which engine samples the tokens.")
    replicas: PositiveInt = setting(
        1, "Engines that are started and answer as one; they share the CPU's threads, or get one of gpu_ids each."
    )
    urls: tuple[Url, ...] = setting((), "Servers that run already and answer as one; they are attached, not started.")
    silent_s: PositiveFloat = setting(
        60.0, "How long one of several engines may have work and say nothing before others do it."
    )
    device: Literal["auto", "cpu", "cuda"] = setting("auto", "Where the embedded engine computes.")
    dtype: Literal["auto", "float32", "bfloat16"] = setting(
        "auto", "Precision of the served weights; auto = float32 on a CPU, bfloat16 on a GPU."
    )
    weights: Literal["auto", "float32", "quantised"] = setting(
        "auto",
        "Base weights on a CPU: float32, or the checkpoint's own 4- and 8-bit blocks; auto = blocks where it has them.",
    )
    threads: PositiveInt | None = setting(None, "CPU threads of the engine; null = torch decides.")
    max_active: PositiveInt = setting(8, "Most requests that are computed at once; others wait.")
    max_queued: PositiveInt = setting(256, "Most requests that wait to be computed; further ones get a 503.")
    max_adapters: PositiveInt = setting(
        32,
        "Versions whose weights the embedded engine keeps in memory, the last used; others are read again, and "
        "checked, when somebody asks for them.",
    )
    prefill_chunk: PositiveInt | None = setting(
        None, "Prompt tokens in one step; running answers wait for it. null = 256 on a CPU, 2048 on a GPU."
    )
    kv_bytes: PositiveInt | None = setting(
        None, "Memory for the KV cache of conversations; null = a share of what is free."
    )
    kv_after_update: Reuse = setting(
        "reuse(4)",
        "After an update: recompute the prefix of a session (exact), or keep a long one for n versions (reuse(n)).",
    )
    share_heads: bool = setting(
        False,
        "Let users share the KV cache of equal system prompts and tools: quicker, but how quick tells who guesses.",
    )
    start_timeout_s: PositiveFloat | None = setting(
        None, "How long the engine's process may take to start; null = 120, and 1800 for vllm and sglang."
    )
    wait_s: NonNegativeFloat = setting(
        60.0, "How long a request waits for an engine that is down before it gets a 503."
    )
    max_waiting: PositiveInt = setting(256, "Most requests that wait for an engine that is down.")
    backoff_s: PositiveFloat = setting(0.5, "Pause before the first restart of a dead engine; it doubles each time.")
    max_backoff_s: PositiveFloat = setting(30.0, "Longest pause between restarts.")
    context_window: PositiveInt | None = setting(
        None, "Most tokens of prompt and answer together; null = the model's own, 131072 for the scripted engine."
    )
    url: Url | None = setting(
        None, "A vLLM or SGLang server that runs already, such as http://10.0.0.5:8000; null = one is started here."
    )
    port: Port = setting(0, "Port on loopback of the vLLM or SGLang server that is started here; 0 = any free one.")
    api_key: Secret | None = setting(None, "What the server at engine.url was started with as its key.")
    served_model: Text | None = setting(
        None, "How the server at engine.url names the model, where it goes by another name than model.name."
    )
    adapter_dir: FsPath | None = setting(
        None,
        "Folder through which versions reach the server at engine.url, by the same path on both machines; null = in "
        "the data directory.",
    )
    max_lora_rank: LoraRank = setting(
        16, "Largest rank of an adapter that vLLM or SGLang is started for, or must take at engine.url."
    )
    scripted: ScriptedConfig = setting(ScriptedConfig(), "Settings of the scripted engine.")
    vllm: VllmConfig = Field(default_factory=VllmConfig)
    sglang: SglangConfig = Field(default_factory=SglangConfig)
    colocate: bool = limited(
        False,
        "Run engine and trainer in one process, on disjoint parts of one GPU.",
        "this release runs them as two processes",
    )
    num_gpus: NonNegativeInt | None = limited(
        None,
        "GPUs that serve.",
        "name the GPUs with engine.gpu_ids: one for each of engine.replicas, or all for engine.vllm.tensor_parallel; "
        "`openclaw-rl config --plan` proposes settings for this machine",
        also=(1,),
    )
    gpu_ids: tuple[NonNegativeInt, ...] = setting(
        (), "The GPU that serves, by its number, or one for each replica; empty = the first."
    )


class StoreConfig(Section):
    """The durable log and the directory around it."""

    data_dir: FsPath = setting("~/.openclaw-rl", "Folder of everything that must survive: store, key, versions, logs.")
    url: Url | None = setting(
        None, "A store that processes share, postgresql+psycopg://…; null = SQLite in the data directory."
    )
    commit_window_ms: NonNegativeFloat = setting(
        0.0, "How long a commit waits for others to join it; 0 = only until the commit before it is done."
    )
    redact: bool = setting(False, "Remove secrets from what is stored; a turn that held one is never trained on.")
    retention_days: PositiveFloat | None = setting(
        None, "Delete a session this many days after its last request; null = never."
    )
    checkpoint_bytes: PositiveInt = setting(MiB, "Size at which SQLite's write-ahead log is copied into the database.")


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
