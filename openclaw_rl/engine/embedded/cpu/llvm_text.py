"""The text of LLVM functions, line by line: values with names of their own, vectors and loops.

What the kernels of this folder are written with. Knows nothing of what they compute.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from openclaw_rl.model.tiles import LANES


class Code:
    """Lines of LLVM's text. Every value has a name of its own, which `let` makes; a vector has `lanes` elements."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.lanes = LANES
        self._num_names = 0

    @property
    def floats(self) -> str:
        return floats(self.lanes)

    @property
    def ints(self) -> str:
        return f"<{self.lanes} x i32>"

    def name(self, kind: str) -> str:
        self._num_names += 1
        return f"{kind}{self._num_names}"

    def let(self, text: str) -> str:
        name = f"%{self.name('v')}"
        self.do(f"{name} = {text}")
        return name

    def do(self, text: str) -> None:
        self.lines.append(f"  {text}")

    def label(self, name: str) -> None:
        self.lines.append(f"{name}:")

    def load(self, kind: str, base: str, element: str, *index: str | int) -> str:
        """`kind` at the sum of the indexes, counted in elements; not aligned to more than an element."""
        align = {"i16": 2, "i32": 4, "float": 4}[element]
        return self.let(f"load {kind}, ptr {self.at(base, element, *index)}, align {align}")

    def at(self, base: str, element: str, *index: str | int) -> str:
        for offset in index:
            base = self.let(f"getelementptr {element}, ptr {base}, i64 {offset}")
        return base

    def fma(self, a: str, b: str, c: str | None) -> str:
        if c is None:
            return self.let(f"fmul {self.floats} {a}, {b}")
        return self.let(
            f"call {self.floats} @llvm.fma.v{self.lanes}f32({self.floats} {a}, {self.floats} {b}, {self.floats} {c})"
        )

    def sum_of_lanes(self, total: str) -> str:
        """One float, added in pairs; of a vector of 16."""
        for distance in (8, 4, 2, 1):
            mask = ", ".join(f"i32 {(lane + distance) % LANES}" for lane in range(LANES))
            other = self.let(f"shufflevector {self.floats} {total}, {self.floats} poison, {self.ints} <{mask}>")
            total = self.let(f"fadd {self.floats} {total}, {other}")
        return self.let(f"extractelement {self.floats} {total}, i32 0")

    def splat(self, scalar: str) -> str:
        first = self.let(f"insertelement {self.floats} poison, float {scalar}, i32 0")
        return self.let(f"shufflevector {self.floats} {first}, {self.floats} poison, {self.ints} zeroinitializer")


class Loop:
    """`for index in range(start, stop)`, at least once, with values that are carried from turn to turn."""

    def __init__(self, code: Code, start: str, stop: str, kind: str = "", carried: Sequence[str] = ()) -> None:
        self._code, self._stop = code, stop
        before, self._body, self._after = code.name("before"), code.name("body"), code.name("after")
        code.do(f"br label %{before}")
        code.label(before)
        code.do(f"br label %{self._body}")
        code.label(self._body)
        self.index, self._next = f"%{code.name('i')}", f"%{code.name('i')}"
        self._back = code.name("back")
        code.do(f"{self.index} = phi i64 [ {start}, %{before} ], [ {self._next}, %{self._back} ]")
        self.carried = [f"%{code.name('c')}" for _ in carried]
        self._carried_back = [f"%{code.name('c')}" for _ in carried]
        for name, first, back in zip(self.carried, carried, self._carried_back, strict=True):
            code.do(f"{name} = phi {kind} [ {first}, %{before} ], [ {back}, %{self._back} ]")
        self._kind = kind

    def close(self, carried: Sequence[str] = ()) -> None:
        code = self._code
        code.do(f"br label %{self._back}")
        code.label(self._back)
        for name, value in zip(self._carried_back, carried, strict=True):
            code.do(f"{name} = bitcast {self._kind} {value} to {self._kind}")
        code.do(f"{self._next} = add i64 {self.index}, 1")
        again = code.let(f"icmp ult i64 {self._next}, {self._stop}")
        code.do(f"br i1 {again}, label %{self._body}, label %{self._after}")
        code.label(self._after)


def floats(lanes: int) -> str:
    return f"<{lanes} x float>"


def ints(value: int) -> str:
    return f"splat (i32 {value})"


def literal(value: float) -> str:
    return f"0x{struct.pack('>d', value).hex()}"
