"""The kernel that multiplies rows with quantised tiles, as the text of an LLVM module.

Sums are fp32 and of the blocks' own values, nothing is rounded on the way: for each block scale · (Σ q · x) + minimum ·
(Σ x). Two tricks save half of the work. A 4-bit q is masked where it stands in its word, not shifted down: that makes
it q · 16^s, and x · 16^-s waits for it. And a tile's 16 rows are the lanes of a vector, so nothing is added across.
A row's sums have the same order however many rows there are: a token has the same bits alone, in a batch, in a prompt.

Vectors of 16 lanes become whatever the CPU has: one register with AVX-512, two with AVX2, four with NEON.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from openclaw_rl.engine.embedded.cpu.llvm_text import Code, Loop, floats, ints, literal
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
        *(f"declare {floats(n)} @llvm.fma.v{n}f32({', '.join([floats(n)] * 3)})" for n in sorted({*shapes.values()})),
        "declare ptr @malloc(i64)",
        "declare void @free(ptr)",
    ]
    return "\n".join([*declared, *_multiply(4), *_work(4, shapes), *_multiply(8), *_work(8, shapes)])


def _multiply(bits: Bits) -> list[str]:
    """Prepares x, writes down the job and lets the threads have it."""
    code = Code()
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


def _prepare(code: Code, num: str, shrunk: str, sums: str) -> None:
    """x · 16^-s, and the sum of every block of x."""
    factors = ", ".join(f"float {literal(_shrink(column))}" for column in range(LANES))
    block = Loop(code, "0", num)
    start = code.let(f"mul i64 {block.index}, {BLOCK}")
    halves = [code.load(code.floats, "%x", "float", start, half) for half in (0, LANES)]
    for offset, half in zip((0, LANES), halves, strict=True):
        small = code.let(f"fmul {code.floats} {half}, <{factors}>")
        code.do(f"store {code.floats} {small}, ptr {code.at(shrunk, 'float', start, offset)}, align 4")
    total = code.let(f"fadd {code.floats} {halves[0]}, {halves[1]}")
    first = code.sum_of_lanes(total)
    code.do(f"store float {first}, ptr {code.at(sums, 'float', block.index)}, align 4")
    block.close()


def _work(bits: Bits, shapes: Mapping[int, int]) -> list[str]:
    """What every thread does: take the next tiles until none is left, and all rows of x through these."""
    code = Code()
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
        tile = Loop(code, "%first", end)
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


def _tile(code: Code, bits: Bits, size: int, tile: str, row: str, first_lane: int) -> None:
    """`size` rows of x from `row` on, times the rows of one tile from `first_lane` on."""
    per_word = 32 // bits
    num_words = BLOCK // per_word
    rows = [code.let(f"add i64 {row}, {n}") for n in range(size)]
    starts = [code.let(f"mul i64 {one}, %columns") for one in rows]
    first_block = code.let(f"mul i64 {tile}, %blocks")
    block = Loop(code, "0", "%blocks", code.floats, ["zeroinitializer"] * size)
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


def _unpack(code: Code, bits: Bits, packed: str, s: int) -> str:
    """Column s of a word as floats: q for 8 bits; for 4 bits q · 16^s, and q itself for the highest."""
    if bits == 8:
        up = code.let(f"shl {code.ints} {packed}, {ints(24 - 8 * s)}")
        q = code.let(f"ashr {code.ints} {up}, {ints(24)}")
    elif s < 7:
        q = code.let(f"and {code.ints} {packed}, {ints(15 << 4 * s)}")
    else:  # masked it would be negative
        q = code.let(f"lshr {code.ints} {packed}, {ints(28)}")
    return code.let(f"sitofp {code.ints} {q} to {code.floats}")


def _shrink(column: int) -> float:
    """What makes up for the place of a 4-bit column in its word; a power of two, so that nothing is rounded."""
    s = column % 8
    return 1.0 if s == 7 else 16.0**-s


def _half(code: Code, half: str) -> str:
    """float16 -> float32, also subnormal ones. By hand, for a CPU without the instruction would need a library."""
    word = code.let(f"zext <{code.lanes} x i16> {half} to {code.ints}")
    magnitude = code.let(f"and {code.ints} {word}, {ints(0x7FFF)}")
    sign = code.let(f"and {code.ints} {word}, {ints(0x8000)}")
    shifted = code.let(f"shl {code.ints} {magnitude}, {ints(13)}")
    small = code.let(f"bitcast {code.ints} {shifted} to {code.floats}")
    value = code.let(f"fmul {code.floats} {small}, splat (float {literal(2.0**112)})")
    up = code.let(f"shl {code.ints} {sign}, {ints(16)}")
    together = code.let(f"or {code.ints} {code.let(f'bitcast {code.floats} {value} to {code.ints}')}, {up}")
    return code.let(f"bitcast {code.ints} {together} to {code.floats}")
