"""The tree of a repository -> faults to try, in an order of chance in which functions and kinds of fault take turns, so
that a few of them are spread over the whole repository."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from openclaw_rl.envs.swe.mutations import Fault, find_faults, with_fault
from openclaw_rl.envs.swe.patches import is_test

_NOT_SOURCE = ("setup.py", "conftest.py", "noxfile.py", "conf.py")


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A file of the repository as it is, and with a fault."""

    path: str
    fault: Fault
    sound: bytes
    faulty: bytes


def candidates(tree: Path, seed: int) -> Iterator[Candidate]:
    """All faults of the repository's own modules, none twice. The same seed gives the same order. Blocking."""
    chance = random.Random(seed)
    sources: dict[str, str] = {}
    by_function: dict[tuple[str, str], list[Fault]] = defaultdict(list)
    for path in python_files(tree):
        if is_test(path) or Path(path).name in _NOT_SOURCE:
            continue
        try:
            sources[path] = (tree / path).read_bytes().decode()
            for fault in find_faults(sources[path]):
                by_function[path, fault.function].append(fault)
        except (UnicodeDecodeError, SyntaxError):
            continue  # of another version of Python, or of none
    queues = [(path, _mixed(faults, chance)) for (path, _), faults in by_function.items()]
    chance.shuffle(queues)
    seen = set()
    while queues := [(path, faults) for path, faults in queues if faults]:
        for path, faults in queues:
            fault = faults.pop()
            faulty = with_fault(sources[path], fault)
            if faulty is not None and (path, faulty) not in seen:
                seen.add((path, faulty))
                yield Candidate(path=path, fault=fault, sound=sources[path].encode(), faulty=faulty.encode())


def python_files(tree: Path) -> list[str]:
    """All of a tree, by their paths in it. Blocking."""
    return sorted(path.relative_to(tree).as_posix() for path in tree.rglob("*.py") if path.is_file())


def _mixed(faults: Sequence[Fault], chance: random.Random) -> list[Fault]:
    """To be taken from the end: one of each kind, then the second of each, and so on."""
    num_before: Counter[str] = Counter()
    turns = []
    for fault in chance.sample(faults, len(faults)):
        turns.append((num_before[fault.operator], fault))
        num_before[fault.operator] += 1
    return [fault for _, fault in sorted(turns, key=lambda turn: turn[0], reverse=True)]
