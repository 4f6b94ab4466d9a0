"""Which families there are. A new one is one file and one line here."""

from __future__ import annotations

from collections.abc import Mapping

from openclaw_rl.envs.toolcall.families.calls import CALLS
from openclaw_rl.envs.toolcall.families.convert import CONVERT
from openclaw_rl.envs.toolcall.families.dates import DATES
from openclaw_rl.envs.toolcall.families.family import Family
from openclaw_rl.envs.toolcall.families.lookup import LOOKUP
from openclaw_rl.envs.toolcall.families.sums import SUMS

FAMILIES: Mapping[str, Family] = {family.name: family for family in (SUMS, CALLS, LOOKUP, CONVERT, DATES)}
