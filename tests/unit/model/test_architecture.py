from __future__ import annotations

from typing import Any

import pytest

from openclaw_rl.errors import ModelError
from openclaw_rl.model.architecture import Architecture, LinearScaling, Llama3Scaling, Rope

LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_act": "silu",
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "head_dim": 64,
    "max_position_embeddings": 8192,
    "rms_norm_eps": 1e-05,
    "rope_theta": 100000.0,
    "rope_scaling": None,
    "vocab_size": 49152,
    "tie_word_embeddings": True,
}
QWEN3 = LLAMA | {
    "architectures": ["Qwen3ForCausalLM"],
    "head_dim": 128,
    "use_sliding_window": False,
    "sliding_window": 4096,
    "layer_types": ["full_attention"] * 30,
}
SCALING = {"factor": 8.0, "low_freq_factor": 1, "high_freq_factor": 4.0, "original_max_position_embeddings": 1024}


def read(raw: dict[str, Any]) -> Architecture:
    arch = Architecture.from_config(raw)
    assert arch is not None
    return arch


def test_a_llama() -> None:
    assert read(LLAMA) == Architecture(
        family="llama",
        num_layers=30,
        hidden_size=576,
        mlp_size=1536,
        num_heads=9,
        num_kv_heads=3,
        head_dim=64,
        vocab_size=49152,
        rms_eps=1e-5,
        rope=Rope(theta=100000.0),
        qk_norm=False,
        tied_head=True,
        context_window=8192,
    )


def test_a_qwen3_norms_its_heads_and_an_unused_window_is_none() -> None:
    arch = read(QWEN3)
    assert (arch.family, arch.qk_norm, arch.head_dim) == ("qwen3", True, 128)
    assert (arch.query_size, arch.kv_size) == (1152, 384)


def test_the_matrices_of_a_layer() -> None:
    arch = read(QWEN3)
    shapes = {p.name: (p.out_features, p.in_features) for m in ("qkv", "o", "gate_up", "down") for p in parts(arch, m)}
    assert shapes == {
        "self_attn.q_proj": (1152, 576),
        "self_attn.k_proj": (384, 576),
        "self_attn.v_proj": (384, 576),
        "self_attn.o_proj": (576, 1152),
        "mlp.gate_proj": (1536, 576),
        "mlp.up_proj": (1536, 576),
        "mlp.down_proj": (576, 1536),
    }


def parts(arch: Architecture, module: Any) -> Any:
    return arch.projections(module)


@pytest.mark.parametrize("old", [{}, {"num_key_value_heads": None, "head_dim": None, "rope_theta": None}])
def test_an_old_llama_leaves_out_what_follows_from_the_rest(old: dict[str, Any]) -> None:
    gone = ("num_key_value_heads", "head_dim", "rope_theta", "rope_scaling", "tie_word_embeddings")
    arch = read({key: value for key, value in LLAMA.items() if key not in gone} | old)
    assert (arch.num_kv_heads, arch.head_dim, arch.rope.theta, arch.tied_head) == (9, 64, 10_000.0, False)


@pytest.mark.parametrize(
    ("keys", "rope"),
    [
        ({"rope_theta": 5e5}, Rope(theta=5e5)),
        ({"rope_parameters": {"rope_type": "default", "rope_theta": 5e5}}, Rope(theta=5e5)),
        ({"rope_theta": 1e4, "rope_parameters": {"rope_theta": 5e5}}, Rope(theta=5e5)),
        ({"rope_scaling": {"type": "linear", "factor": 2}}, Rope(theta=1e5, scaling=LinearScaling(factor=2.0))),
        (
            {"rope_scaling": {"rope_type": "llama3", **SCALING}},
            Rope(
                theta=1e5,
                scaling=Llama3Scaling(factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_context=1024),
            ),
        ),
        (
            {"rope_parameters": {"rope_type": "llama3", "rope_theta": 5e5, **SCALING}},
            Rope(
                theta=5e5,
                scaling=Llama3Scaling(factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_context=1024),
            ),
        ),
    ],
)
def test_positions_by_the_keys_of_transformers_4_and_5(keys: dict[str, Any], rope: Rope) -> None:
    assert read(LLAMA | keys).rope == rope


def test_the_context_before_scaling_is_found_outside_or_is_the_window() -> None:
    scaling = {key: value for key, value in SCALING.items() if key != "original_max_position_embeddings"}
    raw = LLAMA | {"rope_scaling": {"rope_type": "llama3", **scaling}}
    window, outside = read(raw).rope.scaling, read(raw | {"original_max_position_embeddings": 512}).rope.scaling
    assert isinstance(window, Llama3Scaling)
    assert isinstance(outside, Llama3Scaling)
    assert (window.original_context, outside.original_context) == (8192, 512)


@pytest.mark.parametrize(
    "option",
    [
        {"architectures": ["MistralForCausalLM"]},
        {"architectures": []},
        {"architectures": None},
        {"attention_bias": True},
        {"mlp_bias": True},
        {"hidden_act": "gelu"},
        {"use_sliding_window": True},
        {"layer_types": ["full_attention", "sliding_attention"]},
        {"quantization_config": {"bits": 4}},
        {"rope_scaling": {"rope_type": "yarn", "factor": 4.0}},
        {"rope_scaling": {"type": "dynamic", "factor": 4.0}},
        {"partial_rotary_factor": 0.5},
        {"rope_parameters": {"rope_theta": 1e4, "partial_rotary_factor": 0.25}},
        {"rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 1e4}}},
    ],
    ids=str,
)
def test_what_would_change_the_maths_is_left_to_transformers(option: dict[str, Any]) -> None:
    assert Architecture.from_config(LLAMA | option) is None


@pytest.mark.parametrize("key", [key for key in LLAMA if key not in ("architectures", "hidden_act", "rope_scaling")])
@pytest.mark.parametrize("value", ["4", 0, -1, True, 0.0])
def test_an_impossible_number_is_named(key: str, value: Any) -> None:
    if key == "tie_word_embeddings" and value is True:
        return
    with pytest.raises(ModelError, match=f"{key} in config.json is {value!r}"):
        Architecture.from_config(LLAMA | {key: value})


@pytest.mark.parametrize(
    "key", ["hidden_size", "num_attention_heads", "vocab_size", "rms_norm_eps", "max_position_embeddings"]
)
def test_a_missing_key_is_named(key: str) -> None:
    with pytest.raises(ModelError, match=f"{key} in config.json is missing"):
        Architecture.from_config({name: value for name, value in LLAMA.items() if name != key})


@pytest.mark.parametrize("key", ["num_key_value_heads", "head_dim"])
def test_a_qwen3_must_say_how_its_heads_are(key: str) -> None:
    with pytest.raises(ModelError, match=f"{key} in config.json is missing"):
        Architecture.from_config(QWEN3 | {key: None})


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"num_key_value_heads": 2}, "9 attention heads for 2"),
        ({"head_dim": 63}, "head_dim 63"),
        ({"rope_scaling": {"rope_type": "linear"}}, "factor in config.json is missing"),
        ({"rope_scaling": {"rope_type": "llama3", **SCALING, "high_freq_factor": 1}}, "high_freq_factor"),
    ],
)
def test_numbers_that_do_not_fit_together(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        Architecture.from_config(LLAMA | keys)
