"""A toy preference in the whole system: a person likes letters, and a random model of two layers comes to write them.

The real control process, engine and trainer; the person is simulated: it asks, reads the answer, gives a thumb and says
what is missing, and asks the next questions when its last thumbs are in the weights that answer. Reward is what it
likes: the share of letters and spaces in an answer. A random model follows no hint, so the teacher is a second one that
has a taste for letters; where hints alone teach, the person complains about every answer.

Seeds are fixed. The first third of the turns is liked 0.65 (binary), 0.71 (opd) and 0.75 (combine) in the mean, the
last third 0.99, 0.92 and 0.99; the bar is a difference of 0.1.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

import httpx
import pytest
import torch
from transformers import LlamaForCausalLM

from openclaw_rl.store import StoreReader
from openclaw_rl.types import Step
from tests.server import OPEN_GATE, Server
from tests.tiny import IM_END, VOCAB_SIZE, build_tiny_model, build_tiny_tokenizer

pytestmark = pytest.mark.timeout(240)

NUM_ROUNDS, BATCH_SIZE, MAX_TOKENS = 9, 8, 24
LIKED = frozenset(" etaoinshrdlcumw")
FIRST_PAIR = 259  # the ids from here on are pairs of these letters
ENOUGH = 0.85
TASTE = 8.0
HINT = "Please write only with letters and spaces."


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Random, but for what a model of this size could not learn from some dozens of answers.

    Tokens of a kind lie on one side, as in real models; dimension 0 is the same everywhere; attention is weak, so that
    a hint that means nothing to it does not change all it says; and every sixth pair ends an answer, which it would
    hardly ever come to otherwise.
    """
    folder = build_tiny_model(tmp_path_factory.mktemp("toy") / "model")
    llama: Any = LlamaForCausalLM.from_pretrained(folder)
    torch.manual_seed(0)
    embedding_VH = llama.get_input_embeddings().weight.data
    side_V = torch.where(torch.arange(VOCAB_SIZE) < FIRST_PAIR, -0.1, 0.1)
    embedding_VH += torch.outer(side_V, torch.randn(embedding_VH.shape[1]))
    embedding_VH[:, 0] = 2.0
    for layer in llama.model.layers:
        layer.self_attn.o_proj.weight.data *= 0.3
        layer.self_attn.o_proj.weight.data[0] = 0.0
        layer.mlp.down_proj.weight.data[0] = 0.0
    llama.generation_config.eos_token_id = [IM_END, *range(FIRST_PAIR, VOCAB_SIZE, 6)]
    llama.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def teacher(model: Path) -> Path:
    """The same model with a taste for pairs: its head reads dimension 0 in their favour."""
    llama: Any = LlamaForCausalLM.from_pretrained(model)
    llama.config.tie_word_embeddings = False
    llama.lm_head.weight = torch.nn.Parameter(llama.get_input_embeddings().weight.detach().clone())
    llama.lm_head.weight.data[FIRST_PAIR:, 0] += TASTE
    folder = model.with_name("teacher")
    llama.save_pretrained(folder)
    return build_tiny_tokenizer(folder)


def question(number: int) -> str:
    return f"what is {number}"


def liking(answer: str) -> float:
    """The share of letters and spaces; nothing is nothing to like."""
    return sum(letter in LIKED for letter in answer) / max(1, len(answer))


@dataclass
class Person:
    """Talks to a server and remembers how much it liked each answer that came to an end."""

    server: Server
    always_says: bool
    likings: list[float]

    def talk(self, round_: int, client: httpx.Client) -> None:
        """Until a batch of answers has a thumb."""
        rated, number = 0, 1000 * round_
        while rated < BATCH_SIZE:
            number += 1
            body = {
                "messages": [{"role": "user", "content": question(number)}],
                "max_tokens": MAX_TOKENS,
                "temperature": 1.0,
                "seed": number,
            }
            response = client.post("/v1/chat/completions", json=body)
            assert response.status_code == 200
            (choice,) = response.json()["choices"]
            if choice["finish_reason"] == "stop":
                rated += 1
                self._rate(response.headers["X-OpenClaw-RL-Turn"], liking(choice["message"]["content"] or ""), client)

    def _rate(self, turn: str, liked: float, client: httpx.Client) -> None:
        self.likings.append(liked)
        body: dict[str, Any] = {"turn_id": turn, "rating": "up"}
        if self.always_says or liked < ENOUGH:
            body |= {"rating": "down", "text": HINT}
        assert client.post("/v1/feedback", json=body).status_code == 200


def learn(data_dir: Path, *settings: str, always_says: bool = False) -> tuple[list[float], list[Step]]:
    """How much each answer was liked, in order, and the steps that were taken meanwhile."""
    common = (
        "engine.type=embedded",
        "engine.threads=1",
        f"training.batch_size={BATCH_SIZE}",
        "training.max_wait_s=null",
        "training.learning_rate=0.005",
        *OPEN_GATE,
    )
    with Server(data_dir, *common, *settings) as server:
        reader = StoreReader.open(data_dir)
        person = Person(server, always_says, [])
        with httpx.Client(base_url=server.url, headers=server.headers, timeout=60) as client:
            for round_ in range(1, NUM_ROUNDS + 1):
                person.talk(round_, client)
                server.wait_until(partial(is_live, reader, round_), timeout_s=120.0)
        steps = [step for step in reader.steps("local") if step.state == "done"]
        assert [len(step.sample_ids) for step in steps] == [BATCH_SIZE] * NUM_ROUNDS
        return person.likings, steps


def is_live(reader: StoreReader, number: int) -> bool:
    return any(one.number == number and one.state == "live" for one in reader.versions("local"))


def thirds(likings: list[float]) -> tuple[float, float]:
    size = len(likings) // 3
    return fmean(likings[:size]), fmean(likings[-size:])


@pytest.mark.parametrize("method", ["binary", "opd", "combine"])
def test_the_reward_rises(method: str, model: Path, teacher: Path, tmp_path: Path) -> None:
    likings, steps = learn(
        tmp_path / "data",
        f"model.name={model}",
        f"training.method={method}",
        f"training.teacher_path={teacher}",
        always_says=method == "opd",
    )
    first, last = thirds(likings)
    assert last > first + 0.1
    expected = {"binary": {"loss/binary"}, "opd": {"loss/opd"}, "combine": {"loss/binary", "loss/opd"}}[method]
    seen = {name for step in steps for name in step.metrics if name in ("loss/binary", "loss/opd")}
    assert seen == expected, "no pass ran that the method does not ask for"
