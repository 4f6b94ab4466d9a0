"""`config.json` -> whether its model can be served and trained here, and the part of it that describes the text.

Two families are computed by our own network (`architecture.py`); the others by transformers, with adapters through
peft. Of a model that also sees pictures the text is served. Each name stands here because a tiny checkpoint of it was
read in one pass and token by token with the same result, and because an adapter on it trains and serves
(`tests/unit/model/test_families.py`). Knows JSON alone.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

from openclaw_rl.errors import ModelError

OWN = ("LlamaForCausalLM", "Qwen3ForCausalLM")
"""Our own network, if `architecture.py` finds no option in config.json that it does not compute."""

DENSE = (
    "CohereForCausalLM",
    "Cohere2ForCausalLM",
    "Ernie4_5ForCausalLM",
    "Exaone4ForCausalLM",
    "GemmaForCausalLM",
    "Gemma2ForCausalLM",
    "Gemma3ForCausalLM",
    "Glm4ForCausalLM",
    "GraniteForCausalLM",
    "HunYuanDenseV1ForCausalLM",
    "MinistralForCausalLM",
    "MistralForCausalLM",
    "Olmo2ForCausalLM",
    "Olmo3ForCausalLM",
    "Phi3ForCausalLM",
    "Qwen2ForCausalLM",
    "SeedOssForCausalLM",
    "SmolLM3ForCausalLM",
)

HYBRID = ("Lfm2ForCausalLM", "Qwen3NextForCausalLM", "Qwen3_5ForCausalLM", "Qwen3_5MoeForCausalLM")
"""Some layers keep a state in place of keys and values. It cannot go back: a prompt that does not continue what was
read is read anew."""

EXPERTS = (
    "DeepseekV2ForCausalLM",
    "DeepseekV3ForCausalLM",
    "Glm4MoeForCausalLM",
    "GptOssForCausalLM",
    "GraniteMoeForCausalLM",
    "MiniMaxM2ForCausalLM",
    "MixtralForCausalLM",
    "OlmoeForCausalLM",
    "Qwen2MoeForCausalLM",
    "Qwen3MoeForCausalLM",
)
"""Their experts' weights are fused tensors, which no adapter here changes."""

SEEING = (
    "Gemma3ForConditionalGeneration",
    "Mistral3ForConditionalGeneration",
    "Qwen2_5_VLForConditionalGeneration",
    "Qwen3VLForConditionalGeneration",
    "Qwen3_5ForConditionalGeneration",
    "Qwen3_5MoeForConditionalGeneration",
)
"""Of these the text; a request with a picture is refused."""

ARCHITECTURES = tuple(sorted((*OWN, *DENSE, *HYBRID, *EXPERTS, *SEEING)))

_UNSAID = {"gemma3": {"max_position_embeddings": 131_072, "vocab_size": 262_208}}
"""What Google's files leave out, because it is what transformers assumes."""

_REMEDIES = (
    (("ForConditionalGeneration",), "It is no decoder of text that is known here; choose a model that is."),
    (("ForMaskedLM", "ForSequenceClassification", "ForTokenClassification", "Model"), "It writes no text."),
    (
        ("MambaForCausalLM", "Mamba2ForCausalLM", "RwkvForCausalLM"),
        "It keeps no keys and values at all; of models with a state, those with some layers of attention are known.",
    ),
)
_OTHERWISE = "If transformers knows it as a decoder of text, docs/extend.md says how to add it."


def check_architecture(name: str, config: Mapping[str, Any]) -> str:
    """The architecture that `config.json` names, if we can serve and train it."""
    if "auto_map" in config:
        raise ModelError(
            f"{name} brings its own Python code (auto_map in config.json), and code from a checkpoint is never run. "
            "Choose a checkpoint of an architecture that transformers itself knows."
        )
    architectures = config.get("architectures") or ["none"]
    architecture = str(architectures[0])
    if architecture not in ARCHITECTURES:
        near = difflib.get_close_matches(architecture, ARCHITECTURES, n=1, cutoff=0.85)
        remedy = next((told for ends, told in _REMEDIES if architecture.endswith(ends)), _OTHERWISE)
        raise ModelError(
            f"{name} has the architecture {architecture}, which no engine here loads. "
            + (f"The nearest that is known is {near[0]}. " if near else "")
            + f"{remedy} Supported: {', '.join(ARCHITECTURES)}."
        )
    quantised = config.get("quantization_config")
    if quantised:
        method = quantised.get("quant_method", "unknown") if isinstance(quantised, Mapping) else "unknown"
        raise ModelError(
            f"{name} has quantised weights (quantization_config in config.json: {method}), on which nothing is "
            "trained. Choose the same model in bfloat16; its makers, or others, publish one."
        )
    return architecture


def text_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """What config.json says of the text, beside pictures too, with what such a file leaves out."""
    nested = config.get("text_config")
    if not isinstance(nested, Mapping):
        return dict(config)
    said = {key: value for key, value in nested.items() if value is not None}
    return {**_UNSAID.get(str(config.get("model_type")), {}), **config, **said}
