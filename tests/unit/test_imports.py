"""The direction of dependencies, read from the source of every module, and what importing a module brings along."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "openclaw_rl"
UNIT_TESTS = ROOT / "tests" / "unit"

LAYERS: tuple[frozenset[str], ...] = (
    frozenset({"types"}),
    frozenset({"protocols", "errors", "faults", "redaction", "backoff"}),
    frozenset({"logs", "plugins", "clients"}),
    frozenset({"config"}),
    frozenset({"render", "model", "cloud"}),
    frozenset({"evaluation"}),
    # the stages: they meet as protocols, in wiring.py and pipeline.py
    frozenset({"gateway", "engine", "store", "judge", "credit", "train", "release", "envs", "tracking"}),
    frozenset({"wiring", "views"}),
    frozenset({"dashboard"}),
    frozenset({"pipeline"}),
    frozenset({"cli"}),
    frozenset({"compat"}),
    frozenset({"__main__"}),
)
"""A part may import the parts of the layers above it in this list, and never one beside it or below."""

_TORCH_ROOMS = {
    "engine.embedded": "cache engine fallback loading runner sampling scheduler",
    "engine.embedded.cpu": "adapters quantised tile_kernel",
    "engine.embedded.cuda": "adapters decode_step graph_runner graphs",
    "model": "adapter elementwise foreign foreign_adapter network product weights",
    "train.cloud": "rows step training",
    "train.fsdp": "meeting network ranks students torchrun",
    "train.worker": "checkpoint crew critic form shards speaking step student teacher trainer",
    "train.passes": "activations fallback lora memory plain reader rooms served",
    "train.head": "chunks rows",
    "train.objective": "aggregate custom distillation hints hybrid penalties policy rows sample values",
    "train.tree": "attention kernels past",
}
TORCH_MODULES = tuple(f"openclaw_rl.{room}.{name}" for room, names in _TORCH_ROOMS.items() for name in names.split())
"""The only modules that may import torch; they run in a worker process."""

GPU_MODULES = ("openclaw_rl.engine.embedded.cuda.kernels", "openclaw_rl.train.head.kernels")
"""These also import triton, which only an installation for GPUs has."""

CONTROL_PACKAGES = (
    *("aiohttp", "gguf", "orjson", "prometheus_client", "prompt_toolkit", "psutil", "pydantic"),
    *("renderers", "rich", "sqlalchemy", "typer", "uvloop"),
)
"""What a worker must do without: it runs wherever torch (or, for the scripted one, tokenizers) runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Import:
    """One import statement's reach for one module of ours."""

    source: str
    target: str
    place: str

    def __str__(self) -> str:
        return f"{self.place} imports {self.target}"


def part_of(module: str) -> str:
    """The part of the package that a module belongs to; the package's own `__init__` belongs to none."""
    return module.partition(".")[2].partition(".")[0]


def modules_of(package: Path) -> dict[str, Path]:
    """Every module of a package by its dotted name; the repositories that agents work on in demos are none of ours."""
    found = sorted(path for path in package.rglob("*.py") if "repos" not in path.relative_to(package).parts)
    return {".".join(p.relative_to(package.parent).with_suffix("").parts).removesuffix(".__init__"): p for p in found}


def imports_of(modules: dict[str, Path]) -> Iterator[Import]:
    """Every import of one of these modules by another, wherever it stands: lazy ones and those for types count too."""
    for source, path in modules.items():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.Import():
                    names = [alias.name for alias in node.names]
                case ast.ImportFrom():
                    names = [f"{node.module}.{alias.name}" for alias in node.names]
                case _:
                    continue
            for target in sorted({_module(name, modules) for name in names} - {source, ""}):
                yield Import(source=source, target=target, place=f"{path.name}:{node.lineno} ({source})")


def _module(name: str, modules: dict[str, Path]) -> str:
    """The module that `name`, or the thing it names, is in; empty if it is none of ours."""
    while name and name not in modules:
        name = name.rpartition(".")[0]
    return name


def wrong_ways(imports: Iterator[Import] | list[Import], layers: tuple[frozenset[str], ...]) -> list[str]:
    """The imports that run against the layers."""
    height = {part: number for number, layer in enumerate(layers) for part in layer}
    wrong: list[str] = []
    for found in imports:
        source, target = part_of(found.source), part_of(found.target)
        if source == target or not target:
            continue
        if not source:
            wrong.append(f"{found}: the package itself imports nothing, so that any part of it is cheap to import")
        elif height[target] == height[source]:
            wrong.append(f"{found}: sideways; receive it as a protocol and wire it in pipeline.py")
        elif height[target] > height[source]:
            wrong.append(f"{found}: upwards; {target} already builds on {source}, or may")
    return wrong


MODULES = modules_of(PACKAGE)
IMPORTS = list(imports_of(MODULES))


def test_every_part_has_a_layer_and_every_layer_is_there() -> None:
    on_disk = {part_of(module) for module in MODULES} - {""}
    assert on_disk == frozenset().union(*LAYERS), "give each part its place in LAYERS, in DESIGN order"


def test_imports_follow_the_direction_of_dependencies() -> None:
    wrong = wrong_ways(IMPORTS, LAYERS)
    assert not wrong, "\n".join(wrong)


def test_no_module_imports_itself_through_others() -> None:
    graph = {module: {i.target for i in IMPORTS if i.source == module} for module in MODULES}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail("a circle of imports: " + " <- ".join(error.args[1]))


def test_one_name_is_one_class() -> None:
    places: dict[str, list[str]] = {}
    for module, path in MODULES.items():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name, []).append(module)
    twice = {name: found for name, found in places.items() if len(found) > 1}
    assert not twice, "classes of one name: rename one of each"


def test_the_rule_sees_every_kind_of_import(tmp_path: Path) -> None:
    """The checks above would pass over an empty list: here each wrong way is found."""
    package = tmp_path / "openclaw_rl"
    (package / "gateway").mkdir(parents=True)
    (package / "store").mkdir()
    (package / "__init__.py").write_text("from openclaw_rl import pipeline\n")
    (package / "pipeline.py").write_text("import openclaw_rl.store\n")
    (package / "gateway" / "app.py").write_text(
        "from typing import TYPE_CHECKING\n"
        "if TYPE_CHECKING:\n"
        "    from openclaw_rl.store import writer\n"
        "def late():\n"
        "    from openclaw_rl.pipeline import run\n"
    )
    (package / "store" / "__init__.py").write_text("")
    (package / "store" / "writer.py").write_text("import os\n")
    found = list(imports_of(modules_of(package)))
    assert [(i.source, i.target) for i in found] == [
        ("openclaw_rl", "openclaw_rl.pipeline"),
        ("openclaw_rl.gateway.app", "openclaw_rl.store.writer"),
        ("openclaw_rl.gateway.app", "openclaw_rl.pipeline"),
        ("openclaw_rl.pipeline", "openclaw_rl.store"),
    ]
    itself, sideways, upwards = wrong_ways(found, LAYERS)
    assert "the package itself" in itself
    assert sideways.startswith("app.py:3 (openclaw_rl.gateway.app) imports openclaw_rl.store.writer: sideways")
    assert upwards.startswith("app.py:5 (openclaw_rl.gateway.app) imports openclaw_rl.pipeline: upwards")


def test_the_control_process_never_loads_torch() -> None:
    """Every module but the worker's own, one after the other in one process: the first that brings torch is named."""
    control = [name for name in MODULES if name not in (*TORCH_MODULES, *GPU_MODULES) and not name.endswith("__main__")]
    result = run_python(
        f"""
        import importlib, sys
        for name in {control!r}:
            importlib.import_module(name)
            leaked = {{"torch", "transformers"}} & set(sys.modules)
            if leaked:
                sys.exit(f"importing {{name}} imports {{', '.join(sorted(leaked))}}")
        """
    )
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize(
    ("worker", "without"),
    [
        (("openclaw_rl.engine.embedded.__main__", *TORCH_MODULES), ()),
        (("openclaw_rl.engine.scripted",), ("torch", "transformers", "numpy")),
    ],
    ids=["embedded", "scripted"],
)
def test_a_worker_needs_nothing_of_the_control_process(worker: tuple[str, ...], without: tuple[str, ...]) -> None:
    result = run_python(
        f"""
        import importlib, sys
        sys.modules.update(dict.fromkeys({(*CONTROL_PACKAGES, *without)!r}))
        for name in {worker!r}:
            importlib.import_module(name)
        """
    )
    assert result.returncode == 0, result.stderr


def test_a_worker_starts_without_torchs_compiler() -> None:
    """It takes a second to import, and a CPU has no use for it."""
    result = run_python(
        """
        import sys
        import openclaw_rl.engine.embedded.loading, openclaw_rl.train.worker.trainer
        sys.exit("it is imported" if "torch._dynamo" in sys.modules else None)
        """
    )
    assert result.returncode == 0, result.stderr


def test_unit_tests_mirror_the_package() -> None:
    folders = {path.parent.relative_to(PACKAGE) for path in MODULES.values()} - {Path()}
    tested = {path.parent.relative_to(UNIT_TESTS) for path in UNIT_TESTS.rglob("test_*.py")} - {Path()}
    assert tested <= folders, "tests of folders that the package does not have"
    untested = {folder for folder in folders if len(folder.parts) == 1} - tested
    assert not untested, f"no tests in {', '.join(f'tests/unit/{folder}' for folder in sorted(untested))}"


def run_python(program: str) -> subprocess.CompletedProcess[str]:
    """Runs an indented program in an interpreter of its own, from the project's root."""
    lines = program.strip().splitlines()
    text = "\n".join(line.removeprefix(" " * 8) for line in lines)
    return subprocess.run([sys.executable, "-c", text], cwd=ROOT, capture_output=True, text=True, check=False)


def test_the_rules_judge_is_a_sealed_room() -> None:
    """Others know it by what judge/rules/__init__.py names: its parts and its words may change at any time."""
    room = "openclaw_rl.judge.rules"
    benchmarks = modules_of(ROOT / "benchmarks")
    imports = [*IMPORTS, *imports_of({**MODULES, **benchmarks})]
    inside = {str(i) for i in imports if i.target.startswith(f"{room}.") and not i.source.startswith(room)}
    assert not inside, "\n".join(sorted(inside))


def test_which_database_it_is_the_store_alone_knows() -> None:
    rooms = tuple(f"openclaw_rl.store.{name}" for name in ("sqlite", "sql", "postgres", "learning_log"))
    inside = {str(i) for i in IMPORTS if i.target.startswith(rooms) and part_of(i.source) != "store"}
    assert not inside, "\n".join(sorted(inside))
    named = {name for name, path in MODULES.items() if part_of(name) != "store" and "open_writer" in path.read_text()}
    assert named == {"openclaw_rl.wiring.foundation"}, "it opens the store; everybody else has a protocol"
