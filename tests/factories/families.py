"""A tiny random checkpoint of every architecture that is supported, as transformers saves one; no tokenizer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import transformers

VOCAB_SIZE, WINDOW = 512, 256

_SIZES: dict[str, Any] = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": WINDOW,
    "initializer_range": 0.2,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 2,
}
_HEAD: dict[str, Any] = {"head_dim": 16}
_WINDOWED: dict[str, Any] = {"sliding_window": 24, "layer_types": ["sliding_attention", "full_attention"]}
_EXPERTS: dict[str, Any] = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24}
_LOCAL_EXPERTS: dict[str, Any] = {"num_local_experts": 4, "num_experts_per_tok": 2}
_ROUTED: dict[str, Any] = {
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 24,
    "n_group": 1,
    "topk_group": 1,
    "first_k_dense_replace": 1,
}
_LATENT: dict[str, Any] = {
    "num_key_value_heads": 4,
    "kv_lora_rank": 16,
    "q_lora_rank": 16,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 8,
    "v_head_dim": 16,
}
_DELTA: dict[str, Any] = {
    **_HEAD,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "layer_types": ["linear_attention", "full_attention"],
}
_SHARED: dict[str, Any] = {**_EXPERTS, "shared_expert_intermediate_size": 24}
_TURNED: dict[str, Any] = {
    "rope_parameters": {"rope_type": "default", "rope_theta": 10_000.0, "mrope_section": [2, 1, 1]},
}
_EYE: dict[str, Any] = {"depth": 1, "hidden_size": 16, "intermediate_size": 16, "num_heads": 2, "out_hidden_size": 32}
_EYE_TOKENS: dict[str, Any] = {
    "image_token_id": 500,
    "video_token_id": 501,
    "vision_start_token_id": 502,
    "vision_end_token_id": 503,
}
_TOWER: dict[str, Any] = {
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "image_size": 28,
    "patch_size": 14,
}

_EXTRA: dict[str, dict[str, Any]] = {
    "Cohere2ForCausalLM": {"sliding_window": 24},
    "DeepseekV2ForCausalLM": {**_LATENT, **_ROUTED},
    "DeepseekV3ForCausalLM": {**_LATENT, **_ROUTED},
    "Ernie4_5ForCausalLM": _HEAD,
    "Exaone4ForCausalLM": _WINDOWED,
    "Gemma2ForCausalLM": {**_HEAD, **_WINDOWED},
    "Gemma3ForCausalLM": {**_HEAD, **_WINDOWED},
    "GemmaForCausalLM": _HEAD,
    "Glm4ForCausalLM": _HEAD,
    "Glm4MoeForCausalLM": {**_HEAD, **_ROUTED},
    "GptOssForCausalLM": {**_HEAD, **_LOCAL_EXPERTS, **_WINDOWED},
    "GraniteMoeForCausalLM": _LOCAL_EXPERTS,
    "HunYuanDenseV1ForCausalLM": _HEAD,
    "Lfm2ForCausalLM": {"layer_types": ["conv", "full_attention"]},
    "MiniMaxM2ForCausalLM": {**_HEAD, **_LOCAL_EXPERTS},
    "MinistralForCausalLM": {**_HEAD, "sliding_window": 24},
    "MistralForCausalLM": {**_HEAD, "sliding_window": 24},
    "MixtralForCausalLM": _LOCAL_EXPERTS,
    "Olmo3ForCausalLM": _WINDOWED,
    "OlmoeForCausalLM": {"num_experts": 4, "num_experts_per_tok": 2},
    "Qwen2MoeForCausalLM": _SHARED,
    "Qwen3ForCausalLM": _HEAD,
    "Qwen3MoeForCausalLM": {**_HEAD, **_EXPERTS},
    "Qwen3NextForCausalLM": {**_DELTA, **_SHARED},
    "Qwen3_5ForCausalLM": _DELTA,
    "Qwen3_5MoeForCausalLM": {**_DELTA, **_SHARED},
    "SeedOssForCausalLM": _HEAD,
}
_SEEING: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "Gemma3ForConditionalGeneration": (
        {**_HEAD, **_WINDOWED},
        _TOWER,
        {"mm_tokens_per_image": 4, "image_token_index": 500, "boi_token_index": 501, "eoi_token_index": 502},
    ),
    "Mistral3ForConditionalGeneration": (
        {"model_type": "mistral", **_HEAD, "sliding_window": None},
        {"model_type": "pixtral", **_TOWER},
        {"image_token_index": 500},
    ),
    "Qwen2_5_VLForConditionalGeneration": (_TURNED, _EYE, _EYE_TOKENS),
    "Qwen3VLForConditionalGeneration": (
        {"head_dim": 8, **_TURNED},
        {**_EYE, "deepstack_visual_indexes": [0]},
        _EYE_TOKENS,
    ),
    "Qwen3_5ForConditionalGeneration": (_DELTA, _EYE, _EYE_TOKENS),
    "Qwen3_5MoeForConditionalGeneration": ({**_DELTA, **_SHARED}, _EYE, _EYE_TOKENS),
}


def build_family(architecture: str, folder: Path) -> Path:
    """The checkpoint of that architecture, with random but fixed weights."""
    torch.manual_seed(0)
    model_class: Any = getattr(transformers, architecture)
    config_class = model_class.config_class
    if architecture in _SEEING:
        text, seeing, tokens = _SEEING[architecture]
        config = config_class(text_config={**_SIZES, **text}, vision_config=seeing, **tokens)
    else:
        config = config_class(**{**_SIZES, **_EXTRA.get(architecture, {})})
    model = model_class(config)
    model.save_pretrained(folder)
    return folder
