"""The kernel that multiplies rows with quantised tiles, as the text of an LLVM module.

Sums are fp32 and of the blocks' own values, nothing is rounded on the way: for each block scale · (Σ q · x) + minimum ·
(Σ x). Two tricks save half of the work. A 4-bit q is masked where it stands in its word, not shifted down: that makes
it q · 16^s, and x · 16^-s waits for it. And a tile's 16 rows are the lanes of a vector, so nothing is added across.
A row's sums have the same order however many rows there are: a token has the same bits alone, in a batch, in a prompt.

Vectors of 16 lanes become whatever the CPU has: one register with AVX-512, two with AVX2, four with NEON.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Literal

from openclaw_rl.model.tiles import BLOCK, LANES

Bits = Literal[4, 8]

_WIDE = {8: LANES, 4: LANES, 2: LANES, 1: LANES}
_NARROW = {4: LANES // 2, 2: LANES, 1: LANES}
"""How many rows of x are multiplied at a time, and how many lanes of a tile: each row needs two sums and a total, and
what does not fit into the registers (32 of 16 lanes with AVX-512, else 16 of 8 or 32 of 4) halves the speed."""

_POINTERS = ("x", "quants", "scales", "minima", "out", "sums")
_NUMBERS = ("rows", "blocks", "tiles", "chunk")
_JOB = dict.fromkeys(_POINTERS, "ptr") | dict.fromkeys((*_NUMBERS, "next"), "i64")
"""What the threads are given, eight bytes each. `next` is the first tile that none has taken, `chunk` how many one
takes at a time, `sums` those of the blocks of x."""


def kernel_text(*, wide: bool) -> str:
    """The module, `multiply4` and `multiply8`; `wide` for a CPU with AVX-512."""
    shapes = _WIDE if wide else _NARROW
    declared = [
        *(f"declare {_floats(n)} @llvm.fma.v{n}f32({', '.join([_floats(n)] * 3)})" for n in sorted({*shapes.values()})),
        "declare ptr @malloc(i64)",
        "declare void @free(ptr)",
    ]
    return "\n".join([*declared, *_multiply(4), *_work(4, shapes), *_multiply(8), *_work(8, shapes)])


class _Code:
    """Lines of LLVM's text. Every value has a name of its own, which `let` makes; a vector has `lanes` elements."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.lanes = LANES
        self._num_names = 0

    @property
    def floats(self) -> str:
        return _floats(self.lanes)

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

    def splat(self, scalar: str) -> str:
        first = self.let(f"insertelement {self.floats} poison, float {scalar}, i32 0")
        return self.let(f"shufflevector {self.floats} {first}, {self.floats} poison, {self.ints} zeroinitializer")


class _Loop:
    """`for index in range(start, stop)`, at least once, with values that are carried from turn to turn."""

    def __init__(self, code: _Code, start: str, stop: str, kind: str = "", carried: Sequence[str] = ()) -> None:
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


def _multiply(bits: Bits) -> list[str]:
    """Prepares x, writes down the job and lets the threads have it."""
    code = _Code()
    parameters = [f"ptr %{name}" for name in _POINTERS[:-1]] + [f"i64 %{name}" for name in _NUMBERS]
    code.lines.append(f"define void @multiply{bits}({', '.join(parameters)}, ptr %fork, i32 %threads) {{")
    job = code.let(f"alloca [{len(_JOB)} x i64]")
    x, sums = "%x", "null"
    if bits == 4:
        num = code.let("mul i64 %rows, %blocks")
        x = code.let(f"call ptr @malloc(i64 {code.let(f'mul i64 {num}, {4 * (BLOCK + 1)}')})")
        sums = code.at(x, "float", code.let(f"mul i64 {num}, {BLOCK}"))
        _prepare(code, num, x, sums)
    values = {name: f"%{name}" for name in _JOB} | {"x": x, "sums": sums, "next": "0"}
    for number, (name, kind) in enumerate(_JOB.items()):
        code.do(f"store {kind} {values[name]}, ptr {code.at(job, 'i64', number)}")
    code.do(f"br i1 {code.let('icmp eq ptr %fork, null')}, label %one, label %many")
    code.label("one")
    code.do(f"call void @work{bits}(ptr {job})")
    code.do("br label %done")
    code.label("many")
    code.do(f"call void %fork(ptr @work{bits}, ptr {job}, i32 %threads, i32 0)")
    code.do("br label %done")
    code.label("done")
    if bits == 4:
        code.do(f"call void @free(ptr {x})")
    code.do("ret void")
    code.lines.append("}")
    return code.lines


def _prepare(code: _Code, num: str, shrunk: str, sums: str) -> None:
    """x · 16^-s, and the sum of every block of x."""
    factors = ", ".join(f"float {_float(_shrink(column))}" for column in range(LANES))
    block = _Loop(code, "0", num)
    start = code.let(f"mul i64 {block.index}, {BLOCK}")
    halves = [code.load(code.floats, "%x", "float", start, half) for half in (0, LANES)]
    for offset, half in zip((0, LANES), halves, strict=True):
        small = code.let(f"fmul {code.floats} {half}, <{factors}>")
        code.do(f"store {code.floats} {small}, ptr {code.at(shrunk, 'float', start, offset)}, align 4")
    total = code.let(f"fadd {code.floats} {halves[0]}, {halves[1]}")
    for distance in (8, 4, 2, 1):
        mask = ", ".join(f"i32 {(lane + distance) % LANES}" for lane in range(LANES))
        other = code.let(f"shufflevector {code.floats} {total}, {code.floats} poison, {code.ints} <{mask}>")
        total = code.let(f"fadd {code.floats} {total}, {other}")
    first = code.let(f"extractelement {code.floats} {total}, i32 0")
    code.do(f"store float {first}, ptr {code.at(sums, 'float', block.index)}, align 4")
    block.close()


def _work(bits: Bits, shapes: Mapping[int, int]) -> list[str]:
    """What every thread does: take the next tiles until none is left, and all rows of x through these."""
    code = _Code()
    code.lines.append(f"define internal void @work{bits}(ptr %job) {{")
    for number, (name, kind) in enumerate(_JOB.items()):
        place = code.at("%job", "i64", number)
        code.do(
            f"%{name} = getelementptr i64, ptr {place}, i64 0"
            if name == "next"
            else f"%{name} = load {kind}, ptr {place}"
        )
    code.do(f"%columns = mul i64 %blocks, {BLOCK}")
    code.do(f"%width = mul i64 %tiles, {LANES}")
    code.do("br label %take")
    code.label("take")
    code.do("%first = atomicrmw add ptr %next, i64 %chunk monotonic")
    code.do("%some = icmp ult i64 %first, %tiles")
    code.do("br i1 %some, label %taken, label %done")
    code.label("taken")
    end = code.let("add i64 %first, %chunk")
    is_whole = code.let(f"icmp ult i64 {end}, %tiles")
    end = code.let(f"select i1 {is_whole}, i64 {end}, i64 %tiles")
    row, before = "0", "taken"
    for size, code.lanes in shapes.items():
        code.do(f"br label %rows{size}")
        code.label(f"rows{size}")
        code.do(f"%row{size} = phi i64 [ {row}, %{before} ], [ %row{size}.next, %end{size} ]")
        code.do(f"%row{size}.next = add i64 %row{size}, {size}")
        fits = code.let(f"icmp ule i64 %row{size}.next, %rows")
        code.do(f"br i1 {fits}, label %do{size}, label %next{size}")
        code.label(f"do{size}")
        tile = _Loop(code, "%first", end)
        for first_lane in range(0, LANES, code.lanes):
            _tile(code, bits, size, tile.index, f"%row{size}", first_lane)
        tile.close()
        code.do(f"br label %end{size}")
        code.label(f"end{size}")
        code.do(f"br label %rows{size}")
        code.label(f"next{size}")
        row, before = f"%row{size}", f"next{size}"
    code.do("br label %take")
    code.label("done")
    code.do("ret void")
    code.lines.append("}")
    return code.lines


def _tile(code: _Code, bits: Bits, size: int, tile: str, row: str, first_lane: int) -> None:
    """`size` rows of x from `row` on, times the rows of one tile from `first_lane` on."""
    per_word = 32 // bits
    num_words = BLOCK // per_word
    rows = [code.let(f"add i64 {row}, {n}") for n in range(size)]
    starts = [code.let(f"mul i64 {one}, %columns") for one in rows]
    first_block = code.let(f"mul i64 {tile}, %blocks")
    block = _Loop(code, "0", "%blocks", code.floats, ["zeroinitializer"] * size)
    column = code.let(f"mul i64 {block.index}, {BLOCK}")
    place = code.let(f"add i64 {first_block}, {block.index}")
    words = code.at("%quants", "i32", code.let(f"mul i64 {place}, {num_words * LANES}"))
    xs = [code.at("%x", "float", start, column) for start in starts]
    # Two sums each, of even and odd columns: one alone would wait four cycles for every product.
    dots: list[list[str | None]] = [[None, None] for _ in range(size)]
    for word in range(num_words):
        packed = code.load(code.ints, words, "i32", word * LANES + first_lane)
        for s in range(per_word):
            q = _unpack(code, bits, packed, s)
            for dot, x in zip(dots, xs, strict=True):
                factor = code.splat(code.load("float", x, "float", word * per_word + s))
                dot[s % 2] = code.fma(q, factor, dot[s % 2])
    lane = code.let(f"mul i64 {place}, {LANES}")
    scale = _half(code, code.load(f"<{code.lanes} x i16>", "%scales", "i16", lane, first_lane))
    totals = [
        code.fma(code.let(f"fadd {code.floats} {even}, {odd}"), scale, total)
        for (even, odd), total in zip(dots, block.carried, strict=True)
    ]
    if bits == 4:
        minimum = _half(code, code.load(f"<{code.lanes} x i16>", "%minima", "i16", lane, first_lane))
        for n, one in enumerate(rows):
            at = code.let(f"mul i64 {one}, %blocks")
            totals[n] = code.fma(minimum, code.splat(code.load("float", "%sums", "float", at, block.index)), totals[n])
    block.close(totals)
    lane = code.let(f"mul i64 {tile}, {LANES}")
    for one, total in zip(rows, totals, strict=True):
        target = code.at("%out", "float", code.let(f"mul i64 {one}, %width"), lane, first_lane)
        code.do(f"store {code.floats} {total}, ptr {target}, align 4")


def _unpack(code: _Code, bits: Bits, packed: str, s: int) -> str:
    """Column s of a word as floats: q for 8 bits; for 4 bits q · 16^s, and q itself for the highest."""
    if bits == 8:
        up = code.let(f"shl {code.ints} {packed}, {_ints(24 - 8 * s)}")
        q = code.let(f"ashr {code.ints} {up}, {_ints(24)}")
    elif s < 7:
        q = code.let(f"and {code.ints} {packed}, {_ints(15 << 4 * s)}")
    else:  # masked it would be negative
        q = code.let(f"lshr {code.ints} {packed}, {_ints(28)}")
    return code.let(f"sitofp {code.ints} {q} to {code.floats}")


def _shrink(column: int) -> float:
    """What makes up for the place of a 4-bit column in its word; a power of two, so that nothing is rounded."""
    s = column % 8
    return 1.0 if s == 7 else 16.0**-s


def _half(code: _Code, half: str) -> str:
    """float16 -> float32, also subnormal ones. By hand, for a CPU without the instruction would need a library."""
    word = code.let(f"zext <{code.lanes} x i16> {half} to {code.ints}")
    magnitude = code.let(f"and {code.ints} {word}, {_ints(0x7FFF)}")
    sign = code.let(f"and {code.ints} {word}, {_ints(0x8000)}")
    shifted = code.let(f"shl {code.ints} {magnitude}, {_ints(13)}")
    small = code.let(f"bitcast {code.ints} {shifted} to {code.floats}")
    value = code.let(f"fmul {code.floats} {small}, splat (float {_float(2.0**112)})")
    up = code.let(f"shl {code.ints} {sign}, {_ints(16)}")
    together = code.let(f"or {code.ints} {code.let(f'bitcast {code.floats} {value} to {code.ints}')}, {up}")
    return code.let(f"bitcast {code.ints} {together} to {code.floats}")


def _floats(lanes: int) -> str:
    return f"<{lanes} x float>"


def _ints(value: int) -> str:
    return f"splat (i32 {value})"


def _float(value: float) -> str:
    return f"0x{struct.pack('>d', value).hex()}"
