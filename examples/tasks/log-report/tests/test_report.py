"""Compares the report with what the log says, and writes the share that is right."""

import json
from pathlib import Path

EXPECTED = {"errors": 3, "slowest": "/search", "paths": 7}


def read_report() -> dict[str, object]:
    try:
        report = json.loads(Path("/app/report.json").read_text())
    except (OSError, ValueError) as error:
        print(f"report.json cannot be read: {error}")
        return {}
    return report if isinstance(report, dict) else {}


report = read_report()
right = [name for name, value in EXPECTED.items() if report.get(name) == value]
for name in EXPECTED:
    print(f"{name}: {'right' if name in right else 'wrong'}")
rewards = {"reward": len(right) / len(EXPECTED), "right": len(right)}
Path("/logs/verifier/reward.json").write_text(json.dumps(rewards))
