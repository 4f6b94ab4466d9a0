"""Where values come from, which source wins, and what a mistake in each of them says."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest

from openclaw_rl.config import Config, load_config
from openclaw_rl.config.keys import LEAVES
from openclaw_rl.config.tree import EngineType
from openclaw_rl.errors import ConfigError

DATA = Path(__file__).parents[2] / "data"


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_without_any_source_every_value_is_the_class_default() -> None:
    loaded = load_config(env={})
    assert loaded.config == Config()
    assert loaded.sources == dict.fromkeys(LEAVES, "default")


def test_each_source_beats_the_ones_before_it(tmp_path: Path) -> None:
    first = write(tmp_path / "first.yaml", "training: {lora_rank: 2}")
    second = write(tmp_path / "second.json", '{"training": {"lora_rank": 3}}')
    alias = {"LORA_RANK": "4"}
    native = {**alias, "OPENCLAW_RL__TRAINING__LORA_RANK": "5"}

    def rank(*sources: object) -> tuple[int, str]:
        loaded = load_config(*sources)  # type: ignore[arg-type]
        return loaded.config.training.lora_rank, loaded.sources["training.lora_rank"]

    assert rank([], {}, []) == (16, "default")
    assert rank([first], {}, []) == (2, f"file {first}")
    assert rank([first, second], {}, []) == (3, f"file {second}")
    assert rank([second, first], {}, []) == (2, f"file {first}")
    assert rank([first, second], alias, []) == (4, "env LORA_RANK (alias)")
    assert rank([first, second], native, []) == (5, "env OPENCLAW_RL__TRAINING__LORA_RANK")
    assert rank([first, second], native, ["training.lora_rank=6"]) == (6, "command line")
    assert rank([], {}, ["training.lora_rank=6", "training.lora_rank=7"]) == (7, "command line")


def test_sources_are_merged_key_by_key(tmp_path: Path) -> None:
    file = write(tmp_path / "a.yaml", "gateway: {host: 0.0.0.0, port: 1}\nengine:\n")
    loaded = load_config([file], {"OPENCLAW_RL__GATEWAY": "{port: 2}"}, ["engine.scripted.tokens_per_s=50"])
    gateway = loaded.config.gateway
    assert (gateway.host, gateway.port, gateway.require_key) == ("0.0.0.0", 2, True)
    assert loaded.config.engine.scripted.tokens_per_s == 50
    assert loaded.sources["gateway.host"] == f"file {file}"
    assert loaded.sources["gateway.port"] == "env OPENCLAW_RL__GATEWAY"


def test_the_process_environment_is_read_when_none_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENCLAW_RL__GATEWAY__PORT", "1234")
    assert load_config().config.gateway.port == 1234


def test_the_documented_training_config_loads_unmodified() -> None:
    loaded = load_config([DATA / "seed_training_config.yaml"], {})
    model, training, evaluation = loaded.config.model, loaded.config.training, loaded.config.evaluation
    assert (model.name, model.checkpoint_path) == ("qwen3.5-4b", Path("/path/to/checkpoint"))
    assert (training.learning_rate, training.max_steps, training.batch_size) == (1e-6, 10000, 32)
    assert (training.binary_weight, training.opd_weight, training.gae_lambda) == (0.5, 0.5, 0.95)
    assert (evaluation.judge_model, evaluation.num_judges) == ("gpt-4", 3)
    assert sum(source.startswith("file") for source in loaded.sources.values()) == 24


def test_the_documented_rollout_config_loads_unmodified() -> None:
    loaded = load_config([DATA / "seed_rollout_config.json"], {})
    rollout = loaded.config.rollout
    assert rollout.session_timeout_s == 3600
    assert rollout.message_classification.main_line == ("user", "assistant")
    assert rollout.reward_computation.num_samples == 3
    assert sum(source != "default" for source in loaded.sources.values()) == 9


def test_the_documented_answer_to_judges_that_disagree_loads(tmp_path: Path) -> None:
    text = """
evaluation:
  judge_model: gpt-4
  majority_voting: true
  num_judges: 5  # Increase from 3
  consensus_threshold: 0.6
"""
    evaluation = load_config([write(tmp_path / "e.yaml", text)], {}).config.evaluation
    assert (evaluation.num_judges, evaluation.consensus_threshold) == (5, 0.6)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("training.learning_rat", "training.learning_rate"),
        ("gateway.prot", "gateway.port"),
        ("port", "gateway.port"),
        ("training.num_judges", "evaluation.num_judges"),
        ("gateway.judge_model", "evaluation.judge_model"),
        ("engine.scripted.token_per_s", "engine.scripted.tokens_per_s"),
        ("gateway.port.number", "gateway.port"),
        ("modle", "model"),
    ],
)
def test_a_typo_in_any_source_names_the_nearest_key(tmp_path: Path, written: str, meant: str) -> None:
    section, _, name = written.partition(".")
    nested = f"{section}:\n  {name}: 1\n" if name else f"{section}: 1\n"
    variable = "OPENCLAW_RL__" + written.upper().replace(".", "__")
    file = write(tmp_path / "typo.yaml", nested)
    for sources, where in (
        (([file], {}, []), str(file)),
        (([], {variable: "1"}, []), variable),
        (([], {}, [f"{written}=1"]), "command line"),
    ):
        with pytest.raises(ConfigError) as error:
            load_config(*sources)
        assert f"did you mean {meant}?" in str(error.value)
        assert where in str(error.value)


def test_a_typo_in_a_section_names_the_section_or_the_key(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"did you mean training\?"):
        load_config([write(tmp_path / "a.yaml", "trainig: {learning_rate: 1}")], {})
    with pytest.raises(ConfigError, match=r"did you mean training\.learning_rate\?"):
        load_config(env={}, overrides=["trainig.learning_rate=1"])


def test_a_key_that_resembles_nothing_lists_what_there_is() -> None:
    with pytest.raises(ConfigError, match=r"release has: max_kl, max_kl_prompt, max_length"):
        load_config(env={}, overrides=["release.qqqqqqqq=1"])
    with pytest.raises(ConfigError, match=r"the tree has: model, gateway"):
        load_config(env={}, overrides=["qqqqqqqq=1"])


@pytest.mark.parametrize(
    ("variable", "meant"),
    [
        ("OPENCLAW_RL_GATEWAY__PORT", "OPENCLAW_RL__GATEWAY__PORT"),
        ("OPENCLAW_RL_GATEWAY_PORT", "OPENCLAW_RL__GATEWAY__PORT"),
        ("openclaw_rl__gateway__port", "OPENCLAW_RL__GATEWAY__PORT"),
        ("OPENCLAW_TOPK_WRL", "OPENCLAW_TOPK_W_RL"),
    ],
)
def test_a_variable_with_a_slip_in_its_prefix_is_not_ignored(variable: str, meant: str) -> None:
    with pytest.raises(ConfigError, match=f"did you mean {meant}\\?"):
        load_config(env={variable: "1"})


def test_variables_of_others_are_left_alone() -> None:
    assert load_config(env={"OPENCLAW_HOME": "x", "OPENCLAW_RL_CI": "1", "PORT": "1"}).config == Config()


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("gateway.port=70000", "gateway.port = 70000 (command line): Input should be less than or equal to 65535"),
        ("gateway.port=true", "gateway.port = true (command line): expected a number"),
        ("gateway.port", "'gateway.port' (command line) is not a setting; write section.key=value"),
        ("=5", "unknown setting  (command line); the tree has: model, gateway"),
        ("engine.type=emdedded", f"Input should be {', '.join(map(repr, get_args(EngineType)[:2]))}"),
        ("engine.dtype=", "Input should be 'auto', 'float32'"),
        ("engine.wait_s=.inf", "engine.wait_s = inf (command line): Input should be a finite number"),
        ("engine.kv_after_update=reuse(0)", "expected exact, or reuse(n) with a number of versions"),
        (
            "engine.kv_after_update=reuse",
            "engine.kv_after_update = 'reuse' (command line): expected exact, or reuse(n)",
        ),
        ("engine.weights=quantized", "Input should be 'auto', 'float32' or 'quantised'"),
        ("engine.kv_bytes=0", "engine.kv_bytes = 0 (command line): Input should be greater than 0"),
        ("engine.max_active=0", "engine.max_active = 0 (command line): Input should be greater than 0"),
        ("engine.max_queued=-1", "engine.max_queued = -1 (command line): Input should be greater than 0"),
        ("engine.prefill_chunk=0", "engine.prefill_chunk = 0 (command line): Input should be greater than 0"),
        ("model.cache_dir=", "the path is empty"),
        ("store.data_dir=~nobody-of-that-name/x", "Set HOME or give a full path"),
        ("gateway=5", "gateway (command line) must be a mapping of: host, port"),
        ("engine.scripted.replies=[{match: '(', reply: x}]", "replies[0][match] = '(' (command line): not a regular"),
        ("engine.scripted.replies=[{mach: a}]", "unknown; an entry of engine.scripted.replies has: match, reply"),
        (
            "rollout={session_timeout: 1, session_timeout_s: 2}",
            "rollout.session_timeout_s (command line) is given twice",
        ),
    ],
)
def test_a_wrong_value_says_what_where_and_why(override: str, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        load_config(env={}, overrides=[override])
    assert message in str(error.value)


def test_all_wrong_values_are_reported_at_once() -> None:
    with pytest.raises(ConfigError) as error:
        load_config(env={"BATCH_SIZE": "many"}, overrides=["gateway.port=-1"])
    assert "gateway.port = -1 (command line)" in str(error.value)
    assert "training.batch_size = 'many' (env BATCH_SIZE (alias))" in str(error.value)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.yaml", "gateway: {port: 1, port: 2}", "port is given twice"),
        ("a.json", '{"gateway": {"port": 1, "port": 2}}', "port is given twice"),
        ("a.json", '{"gateway": ', "malformed"),
        ("a.yaml", "gateway: [", "malformed"),
        ("a.yaml", "- gateway", "the file (file"),
        ("a.yaml", "gateway: !!python/name:os.system", "malformed"),
    ],
)
def test_a_malformed_file_is_refused(tmp_path: Path, name: str, text: str, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        load_config([write(tmp_path / name, text)], {})
    assert message in str(error.value)


def test_a_missing_or_binary_file_is_a_config_error(tmp_path: Path) -> None:
    (tmp_path / "b.yaml").write_bytes(b"\xff\xfe\x00")
    for name in ("absent.yaml", "b.yaml"):
        with pytest.raises(ConfigError, match="cannot read the settings file"):
            load_config([tmp_path / name], {})


def test_text_from_variables_and_arguments_is_not_taken_for_numbers() -> None:
    loaded = load_config(env={"OPENCLAW_API_KEY": "0123"}, overrides=["model.name=1e3", "model.served_name=null"])
    assert loaded.config.gateway.api_key is not None
    assert loaded.config.gateway.api_key.get_secret_value() == "0123"
    assert loaded.config.model.name == "1e3"
    assert loaded.config.model.served_name is None


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("a.example,b.example", ("a.example", "b.example")),
        ("[a.example, b.example]", ("a.example", "b.example")),
        ('["a.example"]', ("a.example",)),
        ("*", ("*",)),
        ("", ()),
    ],
)
def test_a_list_may_be_written_with_commas(text: str, hosts: tuple[str, ...]) -> None:
    assert load_config(env={}, overrides=[f"gateway.allowed_hosts={text}"]).config.gateway.allowed_hosts == hosts


def test_numbers_and_words_follow_yaml_1_2(tmp_path: Path) -> None:
    text = "training: {learning_rate: 1e-6, value_clip: off, max_steps: ~}\ngateway: {port: 010}\nmodel: {name: no}"
    config = load_config([write(tmp_path / "a.yaml", text)], {}).config
    assert (config.training.learning_rate, config.training.value_clip, config.training.max_steps) == (1e-6, False, None)
    assert (config.gateway.port, config.model.name) == (10, "no")


def test_relative_paths_and_the_home_are_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    loaded = load_config(env={}, overrides=["engine.scripted.script=a/b.yaml", "store.data_dir=~/d"])
    assert loaded.config.engine.scripted.script == tmp_path / "a/b.yaml"
    assert loaded.config.store.data_dir == tmp_path / "home/d"
    assert load_config(env={}).config.store.data_dir == tmp_path / "home/.openclaw-rl"
