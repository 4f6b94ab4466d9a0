"""A model folder and options -> an engine that runs; a published folder -> weights it can switch to.

Chooses device, precision and how much memory the cache may take, and says in the log what it chose. Full weights are
told from an adapter by their `config.json`.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import torch

from openclaw_rl.engine.embedded.cache import Strands, reuse_rule
from openclaw_rl.engine.embedded.cpu.adapter_kernel import AdapterKernel
from openclaw_rl.engine.embedded.cpu.adapters import KernelAdapters
from openclaw_rl.engine.embedded.cpu.dtype_probe import why_not_bfloat16
from openclaw_rl.engine.embedded.cpu.quantised import try_quantised
from openclaw_rl.engine.embedded.cuda.graphs import why_not
from openclaw_rl.engine.embedded.engine import EmbeddedEngine
from openclaw_rl.engine.embedded.options import EmbeddedOptions
from openclaw_rl.engine.embedded.runner import NetworkRunner
from openclaw_rl.engine.embedded.scheduler import EngineWeights, Runner, Scheduler
from openclaw_rl.engine.worker.admission import verify
from openclaw_rl.errors import ConfigError, EngineRefused, ModelError
from openclaw_rl.model.adapter import AdapterWeights
from openclaw_rl.model.architecture import Architecture, read_architecture
from openclaw_rl.model.network import Network
from openclaw_rl.model.network import Weights as NetworkWeights
from openclaw_rl.model.weights import load_weights
from openclaw_rl.types import BASE_VERSION, EngineState, Publication

_log = logging.getLogger(__name__)

_UNREADABLE = (
    ModelError,
    OSError,
    ValueError,
    TypeError,
    AttributeError,
    ArithmeticError,
    RecursionError,
    RuntimeError,
)
"""What files that somebody else wrote can do to those who read them; torch says RuntimeError when memory is short."""

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
_SHARE_OF_FREE_MEMORY = {"cpu": 0.25, "cuda": 0.8}
"""Of what is free after the weights: a laptop has other programs, a GPU that serves mostly does not."""


def load_engine(folder: Path, options: EmbeddedOptions) -> EmbeddedEngine:
    """Reads the base weights; returns with the model's thread running."""
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    device = torch.device(_choose_device(options.device, options.gpu_ids))
    dtype = choose_dtype(options.dtype, device.type)
    if not (folder / "config.json").is_file():
        raise ModelError(f"{folder} is no model folder: it has no config.json; check model.name")
    arch = read_architecture(folder)
    if arch is not None:
        quantised = _quantised_weights(folder, arch, options, device=device, dtype=dtype)
        weights = quantised or load_weights(folder, arch, device=device, dtype=dtype)
        adapters = KernelAdapters(AdapterKernel()) if quantised else None
        runner = runner_for(Network(arch, weights), max_active=options.max_active, adapters=adapters)
        return assemble(
            runner,
            arch,
            options,
            name=folder.name,
            device=device,
            dtype=dtype,
            precision="float32 on quantised weights" if quantised else "",
        )
    from openclaw_rl.engine.embedded.fallback import TransformersRunner

    _log.info("served through transformers, turn by turn", extra={"model": folder.name})
    fallback = TransformersRunner.load(folder, device=device, dtype=dtype)
    return assemble(fallback, None, options, name=folder.name, device=device, dtype=dtype)


def assemble(
    runner: Runner,
    arch: Architecture | None,
    options: EmbeddedOptions,
    *,
    name: str,
    device: torch.device,
    dtype: torch.dtype,
    precision: str = "",
) -> EmbeddedEngine:
    """The engine around what computes; `arch` is None where that is not our own network.

    `precision` is what the engine calls its precision where that is more than `dtype`.
    """
    kv_bytes = options.kv_bytes or int(_free_bytes(device) * _SHARE_OF_FREE_MEMORY[device.type])
    strands = Strands(
        runner.new_storage,
        max_tokens=kv_bytes // runner.bytes_per_token,
        tokens_per_strand=-(-runner.bytes_per_strand // runner.bytes_per_token),
    )
    window = min(runner.context_window, options.context_window or runner.context_window)
    if strands.max_tokens < window:
        _log.warning(
            "the cache holds %d tokens, less than the window; engine.kv_bytes makes it larger", strands.max_tokens
        )
        window = strands.max_tokens
    chunk = options.prefill_chunk or (2048 if device.type == "cuda" else 256)
    may_reuse = reuse_rule(options.kv_after_update)(BASE_VERSION)
    # A version that is loaded beside running steps takes the interpreter from them, for so long at a time; with the
    # usual 5 ms, and several turns in each step, streams on a GPU stood still for twenty steps.
    sys.setswitchinterval(0.0001)
    _log.info("cache", extra={"tokens": strands.max_tokens, "mib": kv_bytes >> 20, "prefill_chunk": chunk})

    def load(publication: Publication) -> EngineWeights:
        return _load_version(publication, arch, runner, options, device=device, dtype=dtype)

    return EmbeddedEngine(
        Scheduler(strands, max_active=options.max_active, prefill_chunk=chunk),
        EngineWeights(BASE_VERSION, runner, None, may_reuse),
        EngineState(
            model=name,
            versions=(BASE_VERSION,),
            live_version=BASE_VERSION,
            context_window=window,
            vocab_size=runner.vocab_size,
            device=str(device),
            dtype=precision or str(dtype).removeprefix("torch."),
        ),
        load,
        max_queued=options.max_queued,
        max_active=options.max_active,
        max_adapters=min(options.max_adapters, runner.max_adapters),
    )


def _quantised_weights(
    folder: Path, arch: Architecture, options: EmbeddedOptions, *, device: torch.device, dtype: torch.dtype
) -> NetworkWeights | None:
    """Where the model has them and a CPU computes in float32: they are the same values in a sixth of the bytes."""
    if options.weights != "float32" and (device.type, dtype) == ("cpu", torch.float32):
        quantised = try_quantised(folder, arch)
        if quantised is not None:
            return quantised
    if options.weights == "quantised":
        _log.warning("engine.weights is quantised, but this model runs on its full weights here")
    return None


def runner_for(network: Network, *, max_active: int, adapters: KernelAdapters | None = None) -> NetworkRunner:
    """CUDA graphs where they work. `adapters` is for a CPU on which a child process has survived the kernels."""
    if network.device.type != "cuda":
        return NetworkRunner(network, adapters)
    if (reason := why_not(network)) is not None:
        _log.warning("decoding without CUDA graphs, which is slower: %s", reason)
        return NetworkRunner(network)
    from openclaw_rl.engine.embedded.cuda.graph_runner import GraphRunner

    return GraphRunner(network, max_batch=max_active)


def choose_dtype(wanted: str, device: str, probe: Callable[[], str | None] = why_not_bfloat16) -> torch.dtype:
    """The precision to load in; bfloat16 on a CPU only if the probe survived it."""
    if device != "cpu":
        return _DTYPES["bfloat16" if wanted == "auto" else wanted]
    if wanted == "bfloat16":
        reason = probe()
        if reason is None:
            return torch.bfloat16
        _log.warning("bfloat16 does not work on this CPU, so the model runs in float32: %s", reason)
    return torch.float32


def _load_version(
    publication: Publication,
    arch: Architecture | None,
    base: Runner,
    options: EmbeddedOptions,
    *,
    device: torch.device,
    dtype: torch.dtype,
) -> EngineWeights:
    """The published bytes, checked; `EngineRefused` says what is wrong with them."""
    label = publication.version
    may_reuse = reuse_rule(options.kv_after_update)(label)
    try:
        folder = verify(publication)
        is_adapter = (folder / "adapter_config.json").is_file()
        if arch is None or not isinstance(base, NetworkRunner):
            return EngineWeights(label, _foreign_version(base, folder, is_adapter=is_adapter), None, may_reuse)
        if is_adapter:
            adapter = AdapterWeights.load(folder, arch, device=torch.device("cpu"), dtype=dtype, rest=base.rest)
            attached = base.attach(adapter)
            return EngineWeights(label, base, attached, may_reuse, free=partial(base.detach, attached))
        if read_architecture(folder) != arch:
            raise EngineRefused(f"{folder} has another architecture than the served model", code="wrong_architecture")
        network = Network(arch, load_weights(folder, arch, device=device, dtype=dtype, check_numbers=True))
        return EngineWeights(label, runner_for(network, max_active=options.max_active), None, may_reuse)
    except _UNREADABLE as error:
        raise EngineRefused(f"version {label} cannot be loaded: {error}", code="version_unreadable") from error


def _foreign_version(base: Runner, folder: Path, *, is_adapter: bool) -> Runner:
    from openclaw_rl.engine.embedded.fallback import TransformersRunner

    assert isinstance(base, TransformersRunner)
    return base.with_adapter(folder) if is_adapter else base.with_weights(folder)


def _choose_device(wanted: str, gpu_ids: Sequence[int] = ()) -> str:
    if gpu_ids and wanted != "cpu" and not torch.cuda.is_available():
        named = ",".join(map(str, gpu_ids))
        raise ConfigError(
            f"engine.gpu_ids names {named}, and torch sees no such GPU; name one that is there, or none with "
            "engine.gpu_ids=[]"
        )
    if wanted == "cuda" and not torch.cuda.is_available():
        raise ConfigError("engine.device is cuda, but torch sees no CUDA device; use engine.device=auto or cpu")
    return "cuda" if wanted != "cpu" and torch.cuda.is_available() else "cpu"


def _free_bytes(device: torch.device) -> int:
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    try:
        fields = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
        return int(fields["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):  # not Linux
        return 8 * 2**30
