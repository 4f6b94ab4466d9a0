"""The mathematics of docs/algorithms.md once more: slow and obvious, with loops over Python's own floats.

Nothing here knows torch. `i` counts response tokens, `h` candidates, `v` tokens of the vocabulary; a row is a list of
log-probs over the whole vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

Row = Sequence[float]


def log_softmax(logits: Row, temperature: float = 1.0) -> list[float]:
    scaled = [x / temperature for x in logits]
    total = math.log(sum(math.exp(x) for x in scaled))
    return [x - total for x in scaled]


def clip(x: float, low: float, high: float) -> float:
    return min(max(x, low), high)


def surrogate(
    log_ratio: float, advantage: float, low: float, high: float, dual: float | None = None
) -> tuple[float, bool]:
    ratio = math.exp(clip(log_ratio, -20, 20))
    free = -advantage * ratio
    clipped = -advantage * clip(ratio, 1 - low, 1 + high)
    loss = max(free, clipped)
    if dual is not None and advantage < 0:
        loss = min(loss, -advantage * dual)
    return loss, clipped > free


def importance(old: float, sampled: float, limit: float, on_policy: bool) -> float:
    weight = min(math.exp(clip(old - sampled, -20, 20)), limit)
    return weight if on_policy else min(weight, 1.0)


def sample_mean(values: Row, mask: Sequence[bool]) -> float:
    counted = [x for x, counts in zip(values, mask, strict=True) if counts]
    return sum(counted) / max(1, len(counted))


def top_k(row: Row, k: int) -> list[int]:
    return sorted(range(len(row)), key=lambda v: -row[v])[:k]


def overlap(student: Sequence[int], teacher: Sequence[int]) -> int:
    return len(set(student) & set(teacher))


def select(overlaps: Sequence[Sequence[int]], mask: Sequence[bool], mode: str) -> list[int]:
    """`overlaps[h][i]`; `max` takes the first of equal ones."""
    candidates = range(len(overlaps))
    size = len(mask)
    if mode == "shortest":
        return [0] * size
    if mode == "sequence_optimal":
        sums = [sum(overlaps[h][i] for i in range(size) if mask[i]) for h in candidates]
        return [max(candidates, key=lambda h: sums[h])] * size
    assert mode == "token_optimal"
    return [max(candidates, key=lambda h: overlaps[h][i]) for i in range(size)]


def subset(student: Sequence[int], teacher: Sequence[int], mode: str) -> set[int]:
    return {
        "student": set(student),
        "teacher": set(teacher),
        "overlap": set(student) & set(teacher),
        "union": set(student) | set(teacher),
    }[mode]


def topk_loss(
    new: Row, old: Row, teacher: Row, members: set[int], gap_clip: float, low: float, high: float
) -> tuple[float, float, float]:
    """Loss, share of clipped members, mean gap of one position."""
    loss = num_clipped = mean_gap = 0.0
    mass = sum(math.exp(old[v]) for v in members)
    for v in members:
        weight = math.exp(old[v]) / mass
        gap = teacher[v] - old[v]
        limited = clip(gap, -gap_clip, gap_clip) if gap_clip > 0 else gap
        term, clipped = surrogate(new[v] - old[v], weight * limited, low, high)
        loss += term
        num_clipped += clipped
        mean_gap += weight * abs(gap)
    return loss, num_clipped / max(1, len(members)), mean_gap


def reverse_kl(new: Row, teacher: Row, members: set[int]) -> float:
    loss = sum(math.exp(new[v]) * (new[v] - teacher[v]) for v in members)
    inside, inside_teacher = (sum(math.exp(row[v]) for v in members) for row in (new, teacher))
    inside, inside_teacher = min(inside, math.exp(-1e-7)), min(inside_teacher, math.exp(-1e-7))
    return loss + (1 - inside) * (math.log(1 - inside) - math.log(1 - inside_teacher))


def forward_kl(new: Row, teacher: Row, members: Sequence[int]) -> float:
    return sum(math.exp(teacher[v]) * (teacher[v] - new[v]) for v in members)


def kl(new: float, base: float, kind: str) -> float:
    d = new - base
    return {"k1": d, "k2": d * d / 2, "k3": clip(math.exp(min(-d, 700)) - 1 + d, -10, 10)}[kind]


def entropy(row: Row) -> float:
    return -sum(math.exp(x) * x for x in row)


def value_loss(value: float, old: float, target: float, limit: float | None) -> float:
    free = (value - target) ** 2 / 2
    return free if limit is None else max(free, (old + clip(value - old, -limit, limit) - target) ** 2 / 2)


def token_gae(values: Row, mask: Sequence[bool], reward: float, lam: float) -> dict[int, float]:
    """The advantage of each token that counts: Σ_j λ^(j − i) δ_j over these, from i on."""
    places = [i for i, counts in enumerate(mask) if counts]
    kept = [values[i] for i in places]
    deltas = [later - now for now, later in zip(kept, [*kept, reward][1:], strict=True)]
    return {place: sum(lam ** (j - i) * deltas[j] for j in range(i, len(deltas))) for i, place in enumerate(places)}


@dataclass(frozen=True, kw_only=True)
class Case:
    """A whole sample: rows of log-probs by who computed them, `teachers[h][i][v]`."""

    response: Sequence[int]
    mask: Sequence[bool]
    advantages: Row
    sampled: Row | None
    on_policy: bool
    w_rl: float
    w_opd: float
    new: Sequence[Row]
    old: Sequence[Row]
    teachers: Sequence[Sequence[Row]]
    base: Sequence[Row]


def hybrid(
    case: Case,
    *,
    low: float,
    high: float,
    k: int,
    selection: str,
    mode: str,
    gap_clip: float,
    distillation: str = "topk",
    teacher_k: int = 16,
    importance_clip: float | None = None,
    sequence_ratio: bool = False,
    dual: float | None = None,
    kl_coef: float = 0.0,
    kl_type: str = "k3",
    entropy_coef: float = 0.0,
) -> list[float]:
    """The loss of each token."""
    size = len(case.response)
    students = [top_k(row, k) for row in case.old]
    overlaps = [[overlap(students[i], top_k(rows[i], k)) for i in range(size)] for rows in case.teachers]
    chosen = select(overlaps, case.mask, selection) if case.teachers else []
    ratios = [case.new[i][y] - case.old[i][y] for i, y in enumerate(case.response)]
    if sequence_ratio:
        ratios = [sample_mean(ratios, case.mask)] * size
    losses = []
    for i, y in enumerate(case.response):
        new, old = case.new[i], case.old[i]
        weight = 1.0
        if importance_clip is not None and case.sampled is not None:
            weight = importance(old[y], case.sampled[i], importance_clip, case.on_policy)
        loss = case.w_rl * weight * surrogate(ratios[i], case.advantages[i], low, high, dual)[0]
        if case.w_opd:
            teacher = case.teachers[chosen[i]][i]
            members = subset(students[i], top_k(teacher, k), mode)
            if distillation == "topk":
                loss += case.w_opd * topk_loss(new, old, teacher, members, gap_clip, low, high)[0]
            elif distillation == "token":
                gap = teacher[y] - old[y]
                gap = clip(gap, -gap_clip, gap_clip) if gap_clip > 0 else gap
                loss += case.w_opd * weight * surrogate(new[y] - old[y], gap, low, high)[0]
            elif distillation == "reverse_kl":
                loss += case.w_opd * reverse_kl(new, teacher, members)
            else:
                loss += case.w_opd * forward_kl(new, teacher, top_k(teacher, teacher_k))
        loss += kl_coef * kl(new[y], case.base[i][y], kl_type) - entropy_coef * entropy(new)
        losses.append(loss)
    return losses
