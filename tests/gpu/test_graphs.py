"""The decoding graph against the network's plain forward pass.

On a machine without CUDA these tests run under Triton's interpreter, if it is asked for (TRITON_INTERPRET=1).
"""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Sequence
from typing import Literal

import pytest
import torch
from torch import Tensor

from openclaw_rl.engine.embedded.cuda.graphs import GraphDecoder, why_not
from openclaw_rl.errors import ModelError
from openclaw_rl.model.adapter import AdapterWeights
from openclaw_rl.model.network import Network
from tests.gpu.shapes import Row, architecture, plain_logits, random_network, widened, widened_adapter

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
CAN_RUN = DEVICE.type == "cuda" or os.environ.get("TRITON_INTERPRET") == "1"

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not CAN_RUN, reason="needs a CUDA device")]

LENGTHS = (0, 1, 63, 64, 65, 300)
TIGHT = 2e-4


@pytest.fixture(scope="module", params=["llama", "qwen3"])
def network(request: pytest.FixtureRequest) -> Network:
    return tiny(request.param)


@pytest.fixture(scope="module")
def decoder(network: Network) -> GraphDecoder:
    return GraphDecoder(network, max_batch=8, max_rank=32, num_slots=3)


def tiny(family: Literal["llama", "qwen3"]) -> Network:
    return random_network(architecture(family), device=DEVICE, dtype=torch.float32)


def strands(network: Network, lengths: Sequence[int], *, seed: int = 1) -> list[Row]:
    return [Row.random(network, length, capacity=512, seed=seed + i) for i, length in enumerate(lengths)]


def copies(rows: Sequence[Row]) -> list[Row]:
    return [row.copy() for row in rows]


def advance(rows: Sequence[Row]) -> None:
    for row in rows:
        row.length += 1


def adapter(
    network: Network, seed: int, *, rank: int = 8, targets: Sequence[str] = ("q_proj", "k_proj", "v_proj", "o_proj")
) -> AdapterWeights:
    return AdapterWeights.random(
        network.arch,
        rank=rank,
        alpha=3.0 * rank,
        targets=targets,
        seed=seed,
        b_std=0.2,
        device=network.device,
        dtype=network.dtype,
    )


EVERYTHING = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


def check(network: Network, decoder: GraphDecoder, rows: Sequence[Row], token_ids: Sequence[int]) -> None:
    """One step: the same logits, the same new keys and values, and not a byte changed elsewhere."""
    plain, before = copies(rows), copies(rows)
    expected_BV = plain_logits(network, plain, token_ids)
    logits_BV = decoder.decode(rows, token_ids, [0] * len(rows))
    torch.testing.assert_close(logits_BV, expected_BV, atol=TIGHT, rtol=TIGHT)
    for row, right, old in zip(rows, plain, before, strict=True):
        new = row.length
        torch.testing.assert_close(row.kv[:, :, :, new], right.kv[:, :, :, new], atol=TIGHT, rtol=TIGHT)
        row.kv[:, :, :, new] = math.nan
        assert torch.equal(row.kv.nan_to_num(7.5), old.kv.nan_to_num(7.5))
        row.kv[:, :, :, new] = right.kv[:, :, :, new]


def test_logits_are_those_of_the_plain_forward_pass(network: Network, decoder: GraphDecoder) -> None:
    check(network, decoder, strands(network, LENGTHS), [3, 1499, 0, 700, 1023, 1024])


@pytest.mark.parametrize("num_rows", [1, 2, 3, 5, 8])
def test_any_number_of_rows(network: Network, decoder: GraphDecoder, num_rows: int) -> None:
    check(network, decoder, strands(network, [40 + 17 * i for i in range(num_rows)]), list(range(num_rows)))


def test_a_sequence_grows_and_moves(network: Network, decoder: GraphDecoder) -> None:
    """The graph is captured once; the strand doubles and lies elsewhere in the middle of an answer."""
    (row,) = strands(network, [60])
    (plain,) = copies([row])
    for token in range(8):
        expected_BV = plain_logits(network, [plain], [token])
        torch.testing.assert_close(decoder.decode([row], [token], [0]), expected_BV, atol=TIGHT, rtol=TIGHT)
        advance([row, plain])
        if token == 3:
            row = row.copy(capacity=1024)


def test_every_row_has_its_own_adapter(network: Network, decoder: GraphDecoder) -> None:
    first, second = adapter(network, 1, rank=20, targets=EVERYTHING), adapter(network, 2, rank=4, targets=["v_proj"])
    third = adapter(network, 3, rank=32, targets=["up_proj", "k_proj"])
    worn = [second, None, first, third, first]
    slots = {id(None): 0, **{id(it): decoder.load_adapter(it) for it in (first, second, third)}}
    rows = strands(network, LENGTHS[:5])
    plain = copies(rows)
    expected_BV = plain_logits(network, plain, [5, 6, 7, 8, 9], worn)
    without_BV = plain_logits(network, copies(rows), [5, 6, 7, 8, 9])
    logits_BV = decoder.decode(rows, [5, 6, 7, 8, 9], [slots[id(it)] for it in worn])
    torch.testing.assert_close(logits_BV, expected_BV, atol=TIGHT, rtol=TIGHT)
    changed_B = (expected_BV - without_BV).abs().amax(-1) > 0.05
    assert changed_B.tolist() == [it is not None for it in worn], "the adapters are too weak to show anything"
    for slot in filter(None, slots.values()):
        decoder.free_adapter(slot)


def test_a_publish_between_two_steps(network: Network, decoder: GraphDecoder) -> None:
    """The row changes its version without a new capture, and keeps its KV; the old slot serves another adapter."""
    versions = [adapter(network, seed, rank=16, targets=EVERYTHING) for seed in range(4)]
    (row,) = strands(network, [100])
    (plain,) = copies([row])
    slot = decoder.load_adapter(versions[0])
    for token, version in enumerate(versions):
        expected_BV = plain_logits(network, [plain], [token], [version])
        torch.testing.assert_close(decoder.decode([row], [token], [slot]), expected_BV, atol=TIGHT, rtol=TIGHT)
        advance([row, plain])
        if token + 1 < len(versions):
            old, slot = slot, decoder.load_adapter(versions[token + 1])
            decoder.free_adapter(old)
    decoder.free_adapter(slot)


def test_adapters_that_do_not_fit_are_refused(network: Network) -> None:
    decoder = GraphDecoder(network, max_batch=1, max_rank=16, num_slots=2)
    with pytest.raises(ModelError, match="rank 17"):
        decoder.load_adapter(adapter(network, 1, rank=17))
    slots = [decoder.load_adapter(adapter(network, seed)) for seed in range(2)]
    with pytest.raises(ModelError, match="retire"):
        decoder.load_adapter(adapter(network, 3))
    decoder.free_adapter(slots[0])
    assert decoder.load_adapter(adapter(network, 4)) == slots[0]


def drawn_plainly(logits_V: Tensor, temperature: float, uniform: float) -> tuple[int, float]:
    logprobs_V = torch.log_softmax(logits_V.double() / (temperature or 1.0), dim=-1)
    if temperature == 0.0:
        token = int(logits_V.argmax())
    else:
        cumulative_V = logprobs_V.exp().cumsum(0)
        token = int(torch.searchsorted(cumulative_V, uniform * cumulative_V[-1:], right=True))
    return token, float(logprobs_V[token])


def test_draws_by_inverting_the_distribution(network: Network, decoder: GraphDecoder) -> None:
    temperatures = [0.0, 1.0, 0.7, 2.5, 1.0, 0.01, 1.0]
    for uniforms in ([0.3, 0.0, 0.5, 0.25, 0.9999999, 0.6, 0.77], [0.9, 0.123, 0.999, 0.01, 0.5, 0.1, 2**-40]):
        rows = strands(network, [30 + i for i in range(7)])
        logits_BV = plain_logits(network, copies(rows), list(range(7)))
        tokens, logprobs = decoder.decode_and_draw(rows, list(range(7)), [0] * 7, temperatures, uniforms)
        expected = [drawn_plainly(*row) for row in zip(logits_BV, temperatures, uniforms, strict=True)]
        assert tokens == [token for token, _ in expected]
        assert logprobs == pytest.approx([logprob for _, logprob in expected], abs=1e-3)


@pytest.mark.parametrize("num_rows", [1, 3])
def test_a_row_of_nan_spoils_no_other(network: Network, decoder: GraphDecoder, num_rows: int) -> None:
    """Nor does it keep anyone waiting: rows that wear an adapter tell what is computed from what is not by a NaN."""
    slot = decoder.load_adapter(adapter(network, 7, rank=16, targets=EVERYTHING))
    rows = strands(network, [20, 30, 40][:num_rows])
    plain = ([1, 2, 3][:num_rows], [slot] * num_rows, [1.0, 0.0, 0.0][:num_rows], [0.5] * num_rows)
    clean_tokens, clean_logprobs = decoder.decode_and_draw(copies(rows), *plain)
    rows[0].kv[0, 0, 0, 5] = math.nan
    tokens, logprobs = decoder.decode_and_draw(rows, *plain)
    assert math.isnan(logprobs[0])
    assert not any(map(math.isnan, clean_logprobs))
    assert 0 <= tokens[0] < network.arch.vocab_size
    assert (tokens[1:], logprobs[1:]) == (clean_tokens[1:], clean_logprobs[1:])
    decoder.free_adapter(slot)


def test_networks_that_graphs_cannot_decode_are_named() -> None:
    on_cpu = random_network(architecture(), device=torch.device("cpu"), dtype=torch.float32)
    assert why_not(on_cpu) == "the weights are on cpu"


@pytest.mark.skipif(DEVICE.type != "cuda", reason="needs a CUDA device")
class TestOnCuda:
    def test_odd_shapes_are_named(self) -> None:
        assert why_not(tiny("llama")) is None
        odd_heads = architecture(head_dim=24)
        assert "head_dim 24" in str(why_not(random_network(odd_heads, device=DEVICE, dtype=torch.float32)))
        odd_size = architecture(mlp_size=100)
        assert "multiples of 32" in str(why_not(random_network(odd_size, device=DEVICE, dtype=torch.float32)))

    def test_adapters_are_loaded_beside_the_steps(self) -> None:
        """Another thread fills and frees slots all the while; each step is the same as the first, bit by bit."""
        network = tiny("qwen3")
        decoder = GraphDecoder(network, max_batch=2, max_rank=16, num_slots=4)
        slot = decoder.load_adapter(adapter(network, 1, rank=16, targets=EVERYTHING))
        others = [adapter(network, seed, rank=16, targets=EVERYTHING) for seed in range(2, 5)]
        rows = strands(network, [50, 60])
        first = decoder.decode(rows, [1, 2], [slot, 0]).clone()
        done = threading.Event()

        def publish() -> None:
            for _ in range(10):
                for loaded in [decoder.load_adapter(other) for other in others]:
                    decoder.free_adapter(loaded)
            done.set()

        thread = threading.Thread(target=publish)
        thread.start()
        while not done.is_set():
            assert torch.equal(decoder.decode(rows, [1, 2], [slot, 0]), first)
        thread.join()

    @pytest.mark.parametrize("num_rows", [1, 8, 24])
    def test_a_wide_network_in_bfloat16(self, num_rows: int) -> None:
        """A few layers of Qwen3-4B's shape. What the plain pass loses to bfloat16 is the yardstick."""
        arch = architecture(
            num_layers=4,
            hidden_size=2560,
            mlp_size=9728,
            num_heads=32,
            num_kv_heads=8,
            head_dim=128,
            vocab_size=151_936,
        )
        network = random_network(arch, device=DEVICE, dtype=torch.bfloat16)
        lengths = [(977 * i) % 5000 for i in range(1, num_rows + 1)]
        rows = [Row.random(network, length, capacity=8192, seed=i) for i, length in enumerate(lengths)]
        wide_rows = [Row(row.kv.float(), row.length) for row in rows]
        pair = [adapter(network, seed, rank=32, targets=EVERYTHING) for seed in range(2)]
        wide_pair = [widened_adapter(it) for it in pair]
        decoder = GraphDecoder(network)
        slots = [decoder.load_adapter(it) for it in pair]
        tokens = list(range(num_rows))
        choices = [(None, 0, 1)[i % 3] for i in tokens]
        logits_BV = decoder.decode(rows, tokens, [0 if c is None else slots[c] for c in choices]).clone()
        plain_BV = plain_logits(network, rows, tokens, [None if c is None else pair[c] for c in choices])
        worn = [None if c is None else wide_pair[c] for c in choices]
        exact_BV = plain_logits(widened(network), wide_rows, tokens, worn)
        lost = (plain_BV - exact_BV).norm() / exact_BV.norm()
        assert lost < 0.03
        assert (logits_BV - exact_BV).norm() / exact_BV.norm() < 1.2 * lost
