"""What a layout of GPUs means: who gets which, what does not fit, and settings that do."""

from __future__ import annotations

import pytest

from openclaw_rl.cli.doctor.plan import show_plan
from openclaw_rl.config import load_config
from openclaw_rl.config.plan import LaunchPlan, plan_launch
from openclaw_rl.config.show import require_available
from openclaw_rl.errors import ConfigError

EIGHT = {"NUM_GPUS": "8", "ACTOR_GPUS": "4", "ROLLOUT_GPUS": "2", "PRM_GPUS": "1", "PRM_TEACHER_GPUS": "1"}
MODELS = {"PRM_MODEL_PATH": "/models/prm", "PRM_TEACHER_HF": "/models/teacher", "HF_CKPT": "/models/actor"}


def planned(num_gpus: int, env: dict[str, str], *overrides: str) -> LaunchPlan:
    return plan_launch(load_config(env=env, overrides=overrides).config, num_gpus)


def test_the_documented_layout_deals_out_eight() -> None:
    plan = planned(8, {**EIGHT, **MODELS}, "engine.type=vllm")
    found = {process.name: process for process in plan.processes}
    assert {name: process.gpus for name, process in found.items()} == {
        "gateway, store, loops": (),
        "trainer": (0, 1, 2, 3),
        "engine": (4, 5),
        "judge": (6,),
        "teacher": (7,),
    }
    assert found["engine"].command == "CUDA_VISIBLE_DEVICES=4,5 vllm serve /models/actor --tensor-parallel-size 2"
    assert found["trainer"].command.endswith("4 processes, FSDP2")
    assert not [line for line in plan.obstacles if "this machine has" in line]
    assert [line for line in plan.obstacles if line.startswith("training.actor_gpus")], "the sentence that up says"


def test_a_smaller_machine_says_what_does_not_fit_and_proposes_what_starts() -> None:
    for num_gpus, told in ((0, "this machine has none"), (1, "this machine has 1 GPU"), (2, "this machine has 2 GPUs")):
        plan = planned(num_gpus, EIGHT)
        assert plan.obstacles[0] == f"8 GPUs are asked for, and {told}"
        proposed = load_config(env=EIGHT, overrides=plan.proposal).config
        require_available(proposed)
        assert plan_launch(proposed, num_gpus).obstacles == ()
        assert (proposed.engine.device == "cpu") is (num_gpus == 0)
        assert (proposed.engine.gpu_ids == proposed.training.gpu_ids) is (num_gpus < 2)


@pytest.mark.parametrize(
    ("num_gpus", "settings", "wanted"),
    [
        (
            8,
            ["engine.type=vllm"],
            {"engine.vllm.tensor_parallel=2", "evaluation.judge_gpu_ids=3"},
        ),
        (3, ["engine.type=vllm"], {"engine.gpu_ids=1", "evaluation.judge_gpu_ids=2"}),
        (2, ["engine.type=vllm"], {"engine.gpu_ids=1", "evaluation.judge_gpu_ids=1"}),
        (8, [], {"engine.gpu_ids=1,2", "engine.replicas=2", "evaluation.judge_gpu_ids=3"}),
        (1, ["engine.type=vllm", "engine.gpu_ids=0,1,2", "engine.vllm.tensor_parallel=4"], {"engine.gpu_ids=0"}),
    ],
)
def test_what_is_proposed_keeps_as_much_of_the_layout_as_starts(
    num_gpus: int, settings: list[str], wanted: set[str]
) -> None:
    env = {**EIGHT, **MODELS}
    plan = planned(num_gpus, env, *settings)
    assert wanted <= set(plan.proposal)
    proposed = load_config(env=env, overrides=[*settings, *plan.proposal]).config
    require_available(proposed)
    assert plan_launch(proposed, num_gpus).obstacles == ()


def test_gpus_that_are_named_are_shown_and_counted() -> None:
    named = ("engine.type=vllm", "engine.gpu_ids=2,3", "engine.vllm.tensor_parallel=2", "training.gpu_ids=0")
    plan = planned(4, {}, *named)
    assert [process.gpus for process in plan.processes] == [(), (0,), (2, 3)]
    assert plan.processes[2].command.endswith("--tensor-parallel-size 2")
    assert plan.obstacles == ()
    plan = planned(2, {}, *named)
    assert plan.obstacles == ("4 GPUs are asked for, and this machine has 2 GPUs",)
    assert "engine.gpu_ids=1" in plan.proposal


def test_what_runs_elsewhere_takes_nothing_here() -> None:
    judge = ("evaluation.judge_path=http://j:1/v1?api_key=hunter2", "evaluation.judge_model=m")
    plan = planned(0, {}, "engine.type=vllm", "engine.url=http://a:1", "training.teacher_path=http://t:1", *judge)
    told = {process.name: process.command for process in plan.processes}
    assert told["engine"] == "runs already: http://a:1"
    assert told["teacher"] == "runs already: http://t:1"
    assert told["judge"] == "runs already: http://j:1/v1?api_key=***"
    assert plan.obstacles == ()


def test_shares_beyond_the_whole_are_noticed() -> None:
    plan = planned(8, {**EIGHT, "NUM_GPUS": "6"})
    assert plan.obstacles[0].startswith("the parts ask for 8 GPUs together, and training.num_gpus is 6")


def test_the_defaults_fit_everywhere() -> None:
    for num_gpus in (0, 1, 8):
        plan = planned(num_gpus, {})
        assert (plan.obstacles, plan.proposal) == ((), ())
        assert [process.name for process in plan.processes] == ["gateway, store, loops", "trainer", "engine"]


def test_the_table_shows_it_all(capsys: pytest.CaptureFixture[str]) -> None:
    show_plan(planned(1, EIGHT), as_json=False)
    text = " ".join(capsys.readouterr().out.split())
    assert "0, 1, 2, 3" in text
    assert "8 GPUs are asked for, and this machine has 1 GPU" in text
    assert "openclaw-rl up training.num_gpus=null" in text
    assert "null" not in " ".join(planned(1, {}, "engine.type=sglang").proposal), "only what is set is unset"


def test_a_judge_may_be_an_address() -> None:
    loaded = load_config(env={"PRM_MODEL_PATH": "http://judge:8000/v1"}, overrides=["evaluation.judge_model=prm"])
    assert (loaded.config.evaluation.judge_url, loaded.config.evaluation.judge_path) == ("http://judge:8000/v1", None)
    assert loaded.sources["evaluation.judge_url"] == "env PRM_MODEL_PATH (alias)"
    with pytest.raises(ConfigError, match="two addresses"):
        load_config(env={}, overrides=["evaluation.judge_path=http://a/v1", "evaluation.judge_url=http://b/v1"])


def test_a_teacher_may_be_an_address() -> None:
    training = load_config(env={"PRM_TEACHER_HF": "http://teacher:8000"}).config.training
    assert (training.teacher, training.teacher_url, training.teacher_path) == ("path", "http://teacher:8000", None)


def test_an_address_where_a_folder_is_read_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"training\.save_path.*this is a URL.*give its path"):
        load_config(env={}, overrides=["training.save_path=http://versions:8000/v1"])
