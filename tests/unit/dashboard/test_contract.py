"""api.d.ts is what the shapes say."""

from __future__ import annotations

import inspect
from pathlib import Path

from openclaw_rl.dashboard.server import contract
from openclaw_rl.dashboard.server.contract import ROUTES, declarations, shapes_of

WRITTEN = Path(inspect.getfile(contract)).parents[1] / "api.d.ts"


def test_the_types_of_the_page_are_those_of_the_server() -> None:
    again = "run `python -m openclaw_rl.dashboard.server.contract > openclaw_rl/dashboard/api.d.ts`"
    assert WRITTEN.read_text() == declarations(), again


def test_every_route_stands_in_it_with_its_shapes() -> None:
    text = WRITTEN.read_text()
    for route in ROUTES:
        assert f'"{route.method} {route.path}"' in text
        for shape in shapes_of(route):
            assert f"export interface {shape.__name__} {{" in text
