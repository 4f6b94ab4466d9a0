"""Which credit rule a method has. A new rule is a new file and one line here."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from openclaw_rl.config import TrainingConfig
from openclaw_rl.credit.binary import Binary
from openclaw_rl.credit.combine import Combine
from openclaw_rl.credit.opd import Opd
from openclaw_rl.protocols import CreditRule

CREDIT_RULES: Mapping[str, Callable[[TrainingConfig], CreditRule]] = {
    rule.name: rule for rule in (Binary, Opd, Combine)
}
