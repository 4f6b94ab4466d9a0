"""The settings tree -> docs/configuration.md: `python -m openclaw_rl.config.page > docs/configuration.md`."""

from __future__ import annotations

import json
import sys

from openclaw_rl.config.aliases import ALIASES, SHORTHANDS
from openclaw_rl.config.keys import LEAVES, SECTIONS
from openclaw_rl.config.show import doc_of

_HEAD = """\
# Configuration

Every setting, in the order of the data. This page is generated from the settings themselves
(`python -m openclaw_rl.config.page > docs/configuration.md`), and a test keeps it so.

Set one in a YAML or JSON file (`--config FILE`, repeatable), in the environment (`OPENCLAW_RL__GATEWAY__PORT=8000`, or
a variable from the table), or on the command line (`gateway.port=8000`, or a flag from the table). Each of these is
stronger than the one before. A typo is an error that names the nearest setting. `openclaw-rl config` shows all values
and where each came from; `openclaw-rl config KEY` explains one.

Some settings choose others: `evaluation.judge_model` chooses the endpoint judge, for example. What you set yourself
is stronger, unless the choice comes from a stronger source. A *limited* setting takes only the values named: a start
with another is refused, with the reason.
"""


def page() -> str:
    """The whole page."""
    lines = [_HEAD]
    for name, section in SECTIONS.items():
        keys = [key for key in LEAVES if key.rpartition(".")[0] == name]
        if keys:
            lines += [f"## {name}", "", section.__doc__ or "", "", "| setting | default | means |", "|---|---|---|"]
            lines += [_row(key) for key in keys]
            lines.append("")
    return "\n".join(lines)


def _row(key: str) -> str:
    spellings = [flag for flag, target in SHORTHANDS.items() if target == key]
    spellings += [alias.variable for alias in ALIASES if alias.key == key]
    also = f" Also {', '.join(f'`{one}`' for one in spellings)}." if spellings else ""
    return f"| `{key}` | {_default(key)} | {doc_of(key)}{also} |".replace("{match, reply}", "`{match, reply}`")


def _default(key: str) -> str:
    """The default as one writes it in YAML; a path in the home directory begins with ~."""
    value = LEAVES[key].get_default(call_default_factory=False)
    if not isinstance(value, str):
        value = json.dumps(value)
    return f"`{value}`"


if __name__ == "__main__":
    sys.stdout.write(page())
