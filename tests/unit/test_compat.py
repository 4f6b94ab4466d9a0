"""The seeds' Python names: our versions agree with the seeds' own examples, which run as they are written."""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import openclaw_combine
from openclaw_rl import compat
from openclaw_rl.judge.function import FunctionJudge
from tests.tiny import build_tiny_model
from tests.unit.judge.talk import talk

CODE = Path(__file__).parents[1] / "data" / "seed_code"
SESSION = [
    {"role": "user", "reward": 0.5, "value": 0.1},
    {"role": "system", "reward": 9.0},
    {"role": "assistant", "reward": -1.0},
]


def seed(name: str) -> dict[str, Any]:
    """The names of an example of the seeds, which takes what it does not define from the namespace around it."""
    return runpy.run_path(str(CODE / f"{name}.py"), {"compute_gae": compat.compute_gae})


def test_everything_is_importable_under_the_seeds_package_name_without_torch() -> None:
    assert set(openclaw_combine.__all__) == set(compat.__all__)
    script = "import sys, openclaw_combine, openclaw_combine.utils; print({'torch', 'peft'} & set(sys.modules))"
    shown = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert shown.strip() == "set()"


def test_gae_of_a_list_and_of_a_tensor() -> None:
    expected = [1.0 + 0.99 * 0.95 * -1.0, -1.0]
    assert compat.compute_gae(rewards=[1.0, -1.0], values=[0, 0], gamma=0.99, lambda_=0.95) == pytest.approx(expected)
    found = compat.compute_gae(torch.tensor([[1.0, -1.0], [0.0, 2.0]]))
    assert found.tolist()[0] == pytest.approx(expected)
    assert found.shape == (2, 2)
    assert compat.compute_gae(torch.tensor(0.5)).item() == 0.5


def test_the_opd_loss_of_the_seeds() -> None:
    student = torch.tensor([-1.0, -2.0, -0.1], requires_grad=True)
    teacher, mask = torch.tensor([-0.5, -4.0, -0.2]), torch.tensor([1.0, 1.0, 0.0])
    theirs = seed("custom_opd_loss")["compute_opd_loss"](student, teacher, mask)
    ours = compat.compute_opd_loss(student, teacher, mask)
    assert ours.item() == pytest.approx(theirs.item())
    ours.backward()
    assert student.grad is not None


def test_the_hybrid_loss_of_the_seeds() -> None:
    student, teacher = torch.tensor([-1.0, -2.0]), torch.tensor([-0.5, -1.0])
    theirs, their_parts = seed("hybrid_loss")["compute_hybrid_loss"](student, teacher, torch.tensor([1.0, -1.0]))
    ours, our_parts = compat.compute_hybrid_loss(student, teacher, torch.tensor([1.0, -1.0]))
    assert ours.item() == pytest.approx(theirs.item())
    assert our_parts == pytest.approx(their_parts)


def test_the_session_processor_of_the_seeds() -> None:
    found = []
    for processor in (seed("session_processor")["SessionAwareProcessor"](), compat.SessionAwareProcessor()):
        for interaction in SESSION:
            processor.add_interaction("a", interaction)
        processor.add_interaction("short", SESSION[0])
        found.append(processor.get_training_trajectories(min_turns=3))
    assert found[0] == found[1]
    (trajectory,) = found[1]
    assert [one["role"] for one in trajectory["interactions"]] == ["user", "assistant"]
    assert trajectory["advantages"] == pytest.approx([0.4 + 0.99 * 0.95 * -1.0, -1.0])


async def test_the_reward_class_of_the_seeds_is_a_judge(tmp_path: Path) -> None:
    missing = (
        "def load_reward_model(path):\n"
        "    score = float(__import__('pathlib').Path(path).read_text())\n"
        "    return lambda text: torch.tensor(score if 'Feedback: no' in text else 1.0)\n"
        "CustomRewardModel.tokenize = lambda self, text: text\n"
    )
    file, checkpoint = tmp_path / "custom_reward.py", tmp_path / "weights"
    file.write_text((CODE / "custom_reward.py").read_text() + missing)
    checkpoint.write_text("-1.0")
    judge = FunctionJudge(f"{file}:CustomRewardModel", checkpoint=checkpoint)
    assert [(await judge.judge(talk(said))).score for said in ("no", "thanks")] == [-1, 1]


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")
def test_our_reward_class_reads_a_checkpoint(tmp_path: Path) -> None:
    model = compat.CustomRewardModel(str(build_tiny_model(tmp_path / "model")))
    rewards = model.batch_compute_rewards([{"prompt": "a", "response": "b", "feedback": "c"}] * 2)
    assert rewards.shape == (2,)
    assert rewards[0] == rewards[1] == pytest.approx(model.compute_reward("a", "b", "c"))


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")
def test_lora_as_the_seeds_set_it_up(tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    base = AutoModelForCausalLM.from_pretrained(build_tiny_model(tmp_path / "model"))
    config = compat.setup_lora_model(base, lora_rank=4, lora_alpha=8).peft_config["default"]
    assert (config.r, config.lora_alpha, config.lora_dropout) == (4, 8, 0.1)
    assert config.target_modules == {"q_proj", "k_proj", "v_proj", "o_proj"}


def test_sessions_are_inspected_as_the_seeds_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "rollouts").mkdir()
    kinds = enumerate(("main", "side"))
    lines = [{"id": f"a.{i}", "session_id": "a", "index": i, "type": kind, "next_state": []} for i, kind in kinds]
    text = "\n".join(json.dumps(line) for line in lines)
    (tmp_path / "rollouts" / "rollouts.jsonl").write_text(text + "\n")
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(CODE / "inspect_sessions.py"))
    shown = capsys.readouterr().out.split("\n")
    assert shown[:4] == ["Session a:", "  Total turns: 2", "  Main-line turns: 1", "  Side turns: 1"]


def test_the_rollout_test_of_the_seeds_is_ours() -> None:
    command = [sys.executable, "-m", "openclaw_combine.test_rollout", "--help"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "--num-samples" in shown
    assert "--output-dir" in shown
