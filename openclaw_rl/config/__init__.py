"""Settings: class defaults < YAML or JSON files < environment < command line, into one frozen `Config`.

    loaded = load_config([Path("mine.yaml")], os.environ, ["gateway.port=8000"])
    loaded.config.gateway.port             8000
    loaded.sources["gateway.port"]         "command line"

This package is the only reader of environment variables, settings files and `section.key=value` arguments.
Importing it must stay cheap: it knows no torch, no HTTP and no store.
"""

from __future__ import annotations

from openclaw_rl.config.aliases import ALIASES, SHORTHANDS, Alias
from openclaw_rl.config.learning import (
    EvaluationConfig,
    ReleaseConfig,
    RolloutConfig,
    TrackingConfig,
    TrainingConfig,
)
from openclaw_rl.config.show import ConfigRow, dump, explain, require_available
from openclaw_rl.config.sources import LoadedConfig, load_config
from openclaw_rl.config.tree import (
    AVAILABLE_ENGINES,
    Config,
    EngineConfig,
    EngineType,
    GatewayConfig,
    ModelConfig,
    ScriptedConfig,
    ScriptedReply,
    SglangConfig,
    StoreConfig,
    VllmConfig,
)

__all__ = [
    "ALIASES",
    "AVAILABLE_ENGINES",
    "SHORTHANDS",
    "Alias",
    "Config",
    "ConfigRow",
    "EngineConfig",
    "EngineType",
    "EvaluationConfig",
    "GatewayConfig",
    "LoadedConfig",
    "ModelConfig",
    "ReleaseConfig",
    "RolloutConfig",
    "ScriptedConfig",
    "ScriptedReply",
    "SglangConfig",
    "StoreConfig",
    "TrackingConfig",
    "TrainingConfig",
    "VllmConfig",
    "dump",
    "explain",
    "load_config",
    "require_available",
]
