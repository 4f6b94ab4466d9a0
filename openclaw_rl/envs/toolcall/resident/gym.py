"""Makes and scores problems of reasoning-gym. One request as JSON on stdin, its answer as JSON on stdout.

    {"dataset": "chain_sum", "config": {}, "seed": 7, "size": 20}      [{"question": …, "answer": …}, …]
    {… the same …, "index": 3, "answer": "41"}                         {"score": 0.01}

Some datasets have no one answer; then it is the example that they keep. The answer is null where a problem's own check
does not take it, or takes nonsense as well. A check that raises over an answer does not take it. {"missing": …} says
that the library is not there, {"refused": …} that it has no such dataset.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from typing import Protocol

NONSENSE = "no such answer 0"

Entry = dict[str, object]


class Dataset(Protocol):
    """What we use of a dataset."""

    def __getitem__(self, index: int) -> Entry: ...

    def score_answer(self, answer: str, entry: Entry) -> float: ...


def main() -> None:
    """Answers the request."""
    request = json.load(sys.stdin)
    try:
        reasoning_gym = importlib.import_module("reasoning_gym")
    except ImportError as error:
        json.dump({"missing": str(error)}, sys.stdout)
        return
    try:
        dataset = reasoning_gym.create_dataset(
            request["dataset"], seed=request["seed"], size=request["size"], **request["config"]
        )
    except (ValueError, TypeError, AssertionError) as error:
        json.dump({"refused": f"{type(error).__name__}: {error}"}, sys.stdout)
        return
    if "index" in request:
        told: object = {"score": score(dataset, request["answer"], dataset[request["index"]])}
    else:
        told = [posed(dataset, dataset[index]) for index in range(request["size"])]
    json.dump(told, sys.stdout)


def posed(dataset: Dataset, entry: Entry) -> dict[str, object]:
    """A question, and an answer that its own check takes."""
    right = (answer for answer in references(entry) if score(dataset, answer, entry) >= 1.0)
    is_checked = score(dataset, NONSENSE, entry) < 1.0
    return {"question": entry["question"], "answer": next(right, None) if is_checked else None}


def references(entry: Entry) -> Iterator[str]:
    """What may be the answer: the one, or an example that the problem keeps."""
    metadata = entry["metadata"]
    kept = metadata.items() if isinstance(metadata, dict) else ()
    for value in (entry["answer"], *(value for name, value in kept if str(name).endswith("_answer"))):
        if value is not None:
            yield value if isinstance(value, str) else json.dumps(value)


def score(dataset: Dataset, answer: str, entry: Entry) -> float:
    """From 0 to 1."""
    try:
        return min(1.0, max(0.0, float(dataset.score_answer(answer, entry))))
    except Exception:  # the checks of the library raise what they like over an answer that they do not expect
        return 0.0


if __name__ == "__main__":
    main()
