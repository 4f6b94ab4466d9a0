"""Faults that a person could have made: each is another program, and nothing outside of functions is touched."""

from __future__ import annotations

import ast

from openclaw_rl.envs.swe.mutations import find_faults, with_fault

SOURCE = '''"""Sizes."""

LIMIT = 3 + 4


def size(width: int, height: int = 2) -> int:
    """At least 0."""
    if width <= 0:  # none
        return 0
    return width * height
'''


def test_each_fault_is_a_program_that_differs_in_one_place() -> None:
    made = [(fault, text) for fault in find_faults(SOURCE) if (text := with_fault(SOURCE, fault)) is not None]
    assert len(made) >= 5
    assert {fault.function for fault, _ in made} == {"size"}
    for fault, text in made:
        assert ast.dump(ast.parse(text)) != ast.dump(ast.parse(SOURCE)), fault
        assert text.startswith('"""Sizes."""\n\nLIMIT = 3 + 4\n')
        assert '"""At least 0."""' in text
    texts = {text for _, text in made}
    assert any("width < 0" in text for text in texts)
    assert all("# none" in text for text in texts if "width" in text.partition("if")[2].partition(":")[0])


def test_a_fault_that_makes_no_program_is_none() -> None:
    fault = next(iter(find_faults(SOURCE)))
    broken = type(fault)(
        operator=fault.operator, function=fault.function, start=fault.start, end=fault.end, text="return ]"
    )
    assert with_fault(SOURCE, broken) is None
    same = type(fault)(
        operator=fault.operator,
        function=fault.function,
        start=fault.start,
        end=fault.end,
        text=SOURCE.encode()[fault.start : fault.end].decode(),
    )
    assert with_fault(SOURCE, same) is None
