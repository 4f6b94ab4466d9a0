"""What versions know, question by question; and whether a candidate knows less than those before it.

Every question is asked of a version once: what was found is kept, in memory and in the reports of versions. The quick
check asks candidate, parent and base model in a mixed order, and stops as soon as a loss can be ruled out; the full
check asks the rest. A loss counts if it exceeds its limit and is more than chance explains.
"""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Mapping, Sequence

from openclaw_rl.config.learning import ReleaseConfig
from openclaw_rl.evaluation import capability
from openclaw_rl.evaluation.capability import CapabilityItem, CapabilityResult
from openclaw_rl.protocols import Engine, Renderer
from openclaw_rl.release.gate.report import GateMeasure, GateReport
from openclaw_rl.types import BASE_VERSION, Version

_PART = 32
"""Questions that are asked before the evidence is looked at again."""

_NUM_KEPT = 16
"""Versions whose results are kept."""

_DOUBT = 0.1
"""How often the quick check may overlook a loss as large as its limit. The full check follows."""


class Knowledge:
    """Asks one engine. `items` are those of `release.capability_items`; `model_id` names the model of all ids."""

    def __init__(
        self,
        engine: Engine,
        renderer: Renderer,
        limits: ReleaseConfig,
        *,
        model_id: str,
        items: Sequence[CapabilityItem] | None = None,
    ) -> None:
        self._engine = engine
        self._renderer = renderer
        self._limits = limits
        self.items = spread(capability.load_items() if items is None else items, limits.capability_items)
        self._order = random.Random(0).sample(range(len(self.items)), len(self.items))
        self.parts = [self._order[at : at + _PART] for at in range(0, len(self._order), _PART)]
        """The items by their numbers, in the order in which the quick check asks them."""
        self._found: dict[str, dict[int, bool]] = {}
        """By version, by item: whether it was right, as far as it was asked."""
        text = "\n".join((model_id, *(item.question for item in self.items)))
        self._items_id = hashlib.sha256(text.encode()).hexdigest()[:16]
        """Names the questions and the model, so that results of other sets or models are not taken for these."""

    async def known(self, label: str, reported_by: Version | None = None) -> CapabilityResult:
        """All that a version knows. `reported_by` has a report of it, and of the base model, from its own release."""
        found = self._kept(label)
        found.update(self._reported(label, reported_by))
        await self._ask(label, [at for at in range(len(self.items)) if at not in found])
        return CapabilityResult(
            version=label, items=self.items, right=tuple(found[at] for at in range(len(self.items)))
        )

    async def ask_ahead(self, label: str, reported_by: Version | None, part: Sequence[int]) -> None:
        """Asks a version one of the `parts`, as far as it was not asked yet."""
        found = self._kept(label)
        found.update(self._reported(label, reported_by))
        await self._ask(label, [item for item in part if item not in found])

    async def check(self, report: GateReport, label: str, before: Version | None) -> None:
        """Asks everything, of the candidate, the version before it and the base model; adds a measure."""
        now, was, base = (
            await self.known(label),
            await self.known(_label(before), before),
            await self.known(BASE_VERSION, before),
        )
        changes = {
            "max_capability_loss": (capability.compare(was, now), "its parent"),
            "max_capability_loss_from_base": (capability.compare(base, now), "the base model"),
        }
        limits: dict[str, float] = {key: getattr(self._limits, key) for key in changes}
        objections = [
            f"it lost {-change.difference.value:.1%} of the questions that {whose} gets right, beyond chance; "
            f"release.{key} allows {limits[key]:.1%}"
            for key, (change, whose) in changes.items()
            if change.is_loss and -change.difference.value > limits[key]
        ]
        allowed = "−{max_capability_loss:.1%}, −{max_capability_loss_from_base:.1%} in all".format(**limits)
        report.measures.append(
            GateMeasure(
                name="capability",
                candidate=now.share,
                parent=was.share,
                base=base.share,
                limit=allowed,
                objection="; ".join(objections),
            )
        )
        report.knowledge = {
            "items": self._items_id,
            "right": _as_hex(now.right),
            "base_right": _as_hex(base.right),
            "share": now.interval.to_json(),
            **{f"change_{key[4:]}": change.to_json() for key, (change, _) in changes.items()},
        }

    async def check_quickly(self, report: GateReport, label: str, before: Version | None) -> None:
        """The same, but asks each of the three no more than it takes to rule a loss out."""
        limits = self._limits
        was, base, found = self._kept(_label(before)), self._kept(BASE_VERSION), self._kept(label)
        was.update(self._reported(_label(before), before))
        base.update(self._reported(BASE_VERSION, before))
        compared = ((was, limits.max_capability_loss), (base, limits.max_capability_loss_from_base))
        asked: list[int] = []
        for part in self.parts:
            for version, known in ((_label(before), was), (BASE_VERSION, base), (label, found)):
                await self._ask(version, [item for item in part if item not in known])
            asked += part
            if all(_is_no_loss(_flips(asked, one, found), limit) for one, limit in compared):
                report.measures.append(
                    GateMeasure(
                        name="capability",
                        candidate=_share([found[item] for item in asked]),
                        parent=_share([was[item] for item in asked]),
                        base=_share([base[item] for item in asked]),
                        limit=f"no loss, told by {len(asked)} of {len(self._order)} questions",
                    )
                )
                return
        await self.check(report, label, before)

    def _kept(self, label: str) -> dict[int, bool]:
        found = self._found.pop(label, {})
        self._found[label] = found  # the one that was asked for last
        if len(self._found) > _NUM_KEPT:
            del self._found[next(one for one in self._found if one != BASE_VERSION)]
        return found

    async def _ask(self, label: str, items: Sequence[int]) -> None:
        if items:
            asked = [self.items[at] for at in items]
            result = await capability.measure(self._engine, self._renderer, label, items=asked)
            self._kept(label).update(zip(items, result.right, strict=True))

    def _reported(self, label: str, version: Version | None) -> dict[int, bool]:
        report = version.gate.get("knowledge") if version is not None and isinstance(version.gate, dict) else None
        if not report or report["items"] != self._items_id:
            return {}
        right = _from_hex(report["base_right" if label == BASE_VERSION else "right"], len(self.items))
        return dict(enumerate(right))


def _label(version: Version | None) -> str:
    return BASE_VERSION if version is None else version.label


def _flips(asked: Sequence[int], was: Mapping[int, bool], now: Mapping[int, bool]) -> list[int]:
    """1 for a question that was lost, -1 for one that was won, 0 for all others."""
    return [int(was[item]) - int(now[item]) for item in asked]


def _is_no_loss(flips: Sequence[int], limit: float) -> bool:
    """Whether no loss explains the flips so much better than a loss of `limit` that the latter is ruled out.

    Wald's sequential test of two means, normal; the variance is that of the flips, with one more that might come.
    """
    variance = (sum(map(abs, flips)) + 1) / (len(flips) + 1)
    evidence = limit * (len(flips) * limit / 2 - sum(flips)) / variance
    return evidence >= math.log(1 / _DOUBT)


def _share(right: Sequence[bool]) -> float:
    return sum(right) / len(right)


def spread(items: Sequence[CapabilityItem], count: int) -> tuple[CapabilityItem, ...]:
    """Chooses so many items, spread evenly over the set; always the same ones."""
    count = min(count, len(items))
    return tuple(items[at * len(items) // count] for at in range(count))


def _as_hex(right: Sequence[bool]) -> str:
    return f"{int('1' + ''.join(str(int(one)) for one in right), 2):x}"


def _from_hex(text: str, count: int) -> tuple[bool, ...]:
    bits = f"{int(text, 16):b}"[1:]
    assert len(bits) == count, "the same items have as many results"
    return tuple(bit == "1" for bit in bits)
