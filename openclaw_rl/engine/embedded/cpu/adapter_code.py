"""The kernel that adds many adapters to the rows that wear them, as the text of an LLVM module.

A unit is up to four rows of x with one adapter: y[out of part] += scale · (x · Aᵀ) · Bᵀ for each part of a projection.
The threads take units until none is left, so that one reads an adapter while the other reads the next. A and B are read
once for a unit, each from its beginning to its end: 20 MB an adapter and token, which is what this costs. A row's sums
have the same order whatever rows are beside it.

A unit is five words: where the adapter's table is, its rank, its first row, how many rows, scale (a float's bits). A
table has an entry for each projection: how many parts, and for each of up to three where A [R, in] and B [R, out]
begin, its first column of y and how many columns it has.
"""

from __future__ import annotations

from openclaw_rl.engine.embedded.cpu.llvm_text import Code, Loop, floats
from openclaw_rl.model.tiles import BLOCK, LANES

MAX_ROWS = 4
MAX_RANK = 64
"""What the threads have room for on their stacks; an adapter of a larger rank is multiplied by torch."""

MAX_PARTS = 3
UNIT_WORDS = 5
PART_WORDS = 4
ENTRY_WORDS = 1 + MAX_PARTS * PART_WORDS

_TOGETHER = 4
"""Rows of B that pass through y at a time."""

_JOB = {
    "units": "ptr",
    "x": "ptr",
    "y": "ptr",
    "entry": "i64",
    "num": "i64",
    "in": "i64",
    "width": "i64",
    "next": "i64",
}


def adapter_text() -> str:
    """The module; its function is `adapt`."""
    declared = f"declare {floats(LANES)} @llvm.fma.v{LANES}f32({', '.join([floats(LANES)] * 3)})"
    return "\n".join([declared, *_adapt(), *_work()])


def _adapt() -> list[str]:
    """Writes down the job and lets the threads have it."""
    code = Code()
    given = [f"{kind} %{name}" for name, kind in _JOB.items() if name != "next"]
    code.lines.append(f"define void @adapt({', '.join(given)}, ptr %fork, i32 %threads) {{")
    job = code.let(f"alloca [{len(_JOB)} x i64]")
    for place, (name, kind) in enumerate(_JOB.items()):
        code.do(f"store {kind} {'0' if name == 'next' else f'%{name}'}, ptr {code.at(job, 'i64', place)}")
    code.do(f"br i1 {code.let('icmp eq ptr %fork, null')}, label %one, label %many")
    code.label("one")
    code.do(f"call void @adapt_work(ptr {job})")
    code.do("br label %done")
    code.label("many")
    code.do(f"call void %fork(ptr @adapt_work, ptr {job}, i32 %threads, i32 0)")
    code.do("br label %done")
    code.label("done")
    code.do("ret void")
    code.lines.append("}")
    return code.lines


def _work() -> list[str]:
    """What every thread does."""
    code = Code()
    code.lines.append("define internal void @adapt_work(ptr %job) {")
    code.do(f"%reduced = alloca [{MAX_ROWS * MAX_RANK} x float]")
    for place, (name, kind) in enumerate(_JOB.items()):
        at = code.at("%job", "i64", place)
        code.do(f"%{name} = " + (f"getelementptr i64, ptr {at}, i64 0" if name == "next" else f"load {kind}, ptr {at}"))
    code.do("br label %take")
    code.label("take")
    mine = code.let("atomicrmw add ptr %next, i64 1 monotonic")
    code.do(f"br i1 {code.let(f'icmp ult i64 {mine}, %num')}, label %taken, label %done")
    code.label("taken")
    unit = code.at("%units", "i64", code.let(f"mul i64 {mine}, {UNIT_WORDS}"))
    table, rank, row, rows = (
        code.let(f"load {kind}, ptr {code.at(unit, 'i64', place)}") for place, kind in enumerate(("ptr", *["i64"] * 3))
    )
    scale = code.let(f"load float, ptr {code.at(unit, 'i64', 4)}")
    entry = code.at(table, "i64", code.let(f"mul i64 %entry, {ENTRY_WORDS}"))
    num_parts = code.let(f"load i64, ptr {entry}")
    x = code.at("%x", "float", code.let(f"mul i64 {row}, %in"))
    y = code.at("%y", "float", code.let(f"mul i64 {row}, %width"))
    code.do(f"br i1 {code.let(f'icmp eq i64 {num_parts}, 0')}, label %take, label %parts")
    code.label("parts")
    part = Loop(code, "0", num_parts)
    words = code.at(entry, "i64", 1, code.let(f"mul i64 {part.index}, {PART_WORDS}"))
    a, b = (code.let(f"load ptr, ptr {code.at(words, 'i64', place)}") for place in (0, 1))
    first, columns = (code.let(f"load i64, ptr {code.at(words, 'i64', place)}") for place in (2, 3))
    out = code.at(y, "float", first)
    sizes = range(1, MAX_ROWS + 1)
    code.do(f"switch i64 {rows}, label %rows1 [{' '.join(f'i64 {size}, label %rows{size}' for size in sizes)}]")
    for size in sizes:
        code.label(f"rows{size}")
        _reduce(code, size, x, a, rank, scale)
        _expand(code, size, out, b, rank, columns)
        code.do("br label %added")
    code.label("added")
    part.close()
    code.do("br label %take")
    code.label("done")
    code.do("ret void")
    code.lines.append("}")
    return code.lines


def _reduce(code: Code, size: int, x: str, a: str, rank: str, scale: str) -> None:
    """reduced = scale · (x · Aᵀ), for `size` rows of x: whole rows of A, each from its beginning to its end."""
    starts = [code.at(x, "float", code.let(f"mul i64 %in, {row}")) for row in range(size)]
    r = Loop(code, "0", rank)
    weights = code.at(a, "float", code.let(f"mul i64 {r.index}, %in"))
    blocks = code.let(f"udiv i64 %in, {BLOCK}")
    halves = BLOCK // LANES  # a sum each, for one alone would wait for every product
    block = Loop(code, "0", blocks, code.floats, ["zeroinitializer"] * (size * halves))
    column = code.let(f"mul i64 {block.index}, {BLOCK}")
    sums = list(block.carried)
    for half in range(halves):
        weight = code.load(code.floats, weights, "float", column, half * LANES)
        for row, start in enumerate(starts):
            place = row * halves + half
            sums[place] = code.fma(weight, code.load(code.floats, start, "float", column, half * LANES), sums[place])
    block.close(sums)
    for row in range(size):
        even, odd = sums[row * halves : (row + 1) * halves]
        total = code.sum_of_lanes(code.let(f"fadd {code.floats} {even}, {odd}"))
        scaled = code.let(f"fmul float {total}, {scale}")
        code.do(f"store float {scaled}, ptr {code.at('%reduced', 'float', row * MAX_RANK, r.index)}, align 4")
    r.close()


def _expand(code: Code, size: int, y: str, b: str, rank: str, columns: str) -> None:
    """y += reduced · Bᵀ, a few rows of B at a time; behind the last one it is read again, times zero."""
    last = code.let(f"sub i64 {rank}, 1")
    tiles = code.let(f"udiv i64 {columns}, {LANES}")
    groups = code.let(f"udiv i64 {code.let(f'add i64 {rank}, {_TOGETHER - 1}')}, {_TOGETHER}")
    group = Loop(code, "0", groups)
    weights: list[str] = []
    factors: list[list[str]] = [[] for _ in range(size)]
    for offset in range(_TOGETHER):
        r = code.let(f"add i64 {code.let(f'mul i64 {group.index}, {_TOGETHER}')}, {offset}")
        is_one = code.let(f"icmp ult i64 {r}, {rank}")
        r = code.let(f"select i1 {is_one}, i64 {r}, i64 {last}")
        weights.append(code.at(b, "float", code.let(f"mul i64 {r}, {columns}")))
        for row in range(size):
            factor = code.load("float", "%reduced", "float", row * MAX_RANK, r)
            factors[row].append(code.splat(code.let(f"select i1 {is_one}, float {factor}, float 0.0")))
    tile = Loop(code, "0", tiles)
    column = code.let(f"mul i64 {tile.index}, {LANES}")
    vectors = [code.load(code.floats, start, "float", column) for start in weights]
    for row in range(size):
        delta: str | None = None
        for vector, factor in zip(vectors, factors[row], strict=True):
            delta = code.fma(vector, factor, delta)
        target = code.at(y, "float", code.let(f"mul i64 %width, {row}"), column)
        before = code.let(f"load {code.floats}, ptr {target}, align 4")
        code.do(f"store {code.floats} {code.let(f'fadd {code.floats} {before}, {delta}')}, ptr {target}, align 4")
    tile.close()
    group.close()
