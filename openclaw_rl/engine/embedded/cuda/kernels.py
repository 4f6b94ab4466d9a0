# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, disable-error-code="possibly-undefined"
"""One decode step of a Llama- or Qwen3-shaped network as Triton kernels: six a layer, then the head and the draw.

A step at small batch is bound by reading weights and KV, so what counts is that the memory never idles. Everything
element-wise is fused into its neighbours: SwiGLU, the residual sum and the norm's weight into the product before, the
norm's scale into the one behind, q/k norm, RoPE and the writing of the new key and value into attention. On Hopper,
with one row, a kernel starts while the one before still runs (programmatic dependent launch: DEPENDENT), asks for the
first of its own weights, which depend on nothing, and only then waits.

LoRA costs no launches: the first programs of a product's grid compute A·x, the others add B·(A·x) when they are done
with the base weights. What a row needs (token, position, where its KV lies, its adapter) comes from one table in
device memory, so that a captured graph serves any strands and adapters.

Imports triton, so it is imported only where there is a CUDA device, or for Triton's interpreter, which runs all of it.
Knows no graphs and no scheduling: `graphs.py` launches these.

Axes: B rows, K inputs of a product, N its outputs, R rank, D head dim, V vocabulary.
"""

from __future__ import annotations

import triton
import triton.language as tl

# The rows of the table `inputs` [FIELDS, MAX_BATCH] of 64-bit words; float fields hold the bits of a double.
TOKEN = tl.constexpr(0)
POSITION = tl.constexpr(1)
KV_ADDRESS = tl.constexpr(2)
KV_CAPACITY = tl.constexpr(3)
ADAPTER = tl.constexpr(4)  # index into the adapters of this step, -1 for none
TEMPERATURE = tl.constexpr(5)
UNIFORM = tl.constexpr(6)
# These are by adapter, not by row.
ADAPTER_ADDRESS = tl.constexpr(7)
ADAPTER_RANK_16 = tl.constexpr(8)  # in units of 16, so that the compiler sees aligned addresses
ADAPTER_SCALE = tl.constexpr(9)
NUM_ADAPTERS = tl.constexpr(10)  # in the first column
NUM_FIELDS = 11

_LOG2_E = tl.constexpr(1.4426950408889634)
UNWRITTEN = tl.constexpr(-1)
"""The bits of a NaN that no arithmetic gives (a GPU's is 0x7fffffff)."""


@triton.jit
def _block(matrix_NK, is_out_N, EVEN: tl.constexpr):
    """A block of weights. A mask would cost: zeros are written first, and the loads are issued one by one."""
    if EVEN:
        return tl.load(matrix_NK)
    else:
        return tl.load(matrix_NK, mask=is_out_N[:, None], other=0.0)


@triton.jit
def _pointer(address, like):
    """An address out of the table as a pointer; the allocators align to more than 16 bytes."""
    return tl.multiple_of(address.to(tl.pointer_type(like.dtype.element_ty)), 16)


@triton.jit
def embed(
    embedding,
    norm,
    inputs,
    x,
    scaled,
    squares,
    MAX_BATCH: tl.constexpr,
    MAX_SQUARES: tl.constexpr,
    H: tl.constexpr,
    BLOCK_H: tl.constexpr,
    DEPENDENT: tl.constexpr,
):
    """A row's token -> its hidden state, and what the first norm needs of it (see `matrix_linear`)."""
    row = tl.program_id(0)
    if DEPENDENT:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    token = tl.load(inputs + TOKEN * MAX_BATCH + row)
    dims_H = tl.arange(0, BLOCK_H)
    is_dim_H = dims_H < H
    x_H = tl.load(embedding + token * H + dims_H, mask=is_dim_H, other=0.0).to(tl.float32)
    norm_H = tl.load(norm + dims_H, mask=is_dim_H, other=0.0).to(tl.float32)
    tl.store(x + row * H + dims_H, x_H.to(x.dtype.element_ty), mask=is_dim_H)
    tl.store(scaled + row * H + dims_H, (x_H * norm_H).to(scaled.dtype.element_ty), mask=is_dim_H)
    tl.store(squares + row * MAX_SQUARES, tl.sum(x_H * x_H, 0))


@triton.jit
def _adapter_part(outs_N, NUM_PARTS: tl.constexpr, FIRST_END: tl.constexpr, SECOND_END: tl.constexpr):
    """The part of a fused projection that a block of outputs lies in; blocks do not straddle parts."""
    part = tl.full((), 0, tl.int32)
    if NUM_PARTS == 3:
        first = tl.min(outs_N, 0)
        part = (first >= FIRST_END).to(tl.int32) + (first >= SECOND_END).to(tl.int32)
    return part


@triton.jit
def _adapter_scale(inputs, adapter, MAX_BATCH: tl.constexpr):
    return tl.load(inputs + ADAPTER_SCALE * MAX_BATCH + adapter).to(tl.float64, bitcast=True).to(tl.float32)


@triton.jit
def _awaited(found, values, is_wanted):
    """A·x, once all of it is there: other programs of the same launch store it over `UNWRITTEN`, float by float.

    `found` is what a load saw some time ago. Those programs have the lowest numbers, so they run already, and they wait
    for nobody. Data that says itself whether it is there needs one round trip to L2 where a flag beside it needs two.
    """
    while tl.max(tl.max((found == UNWRITTEN).to(tl.int32), 1), 0) > 0:
        found = tl.load(values, mask=is_wanted, other=0, volatile=True)
    return found.to(tl.float32, bitcast=True)


@triton.jit
def _sums(
    w_NK,
    up_NK,
    x,
    weight_NK,
    second,
    is_out_N,
    K,
    SWIGLU: tl.constexpr,
    EVEN: tl.constexpr,
    BLOCK_K: tl.constexpr,
    NUM_STAGES: tl.constexpr,
):
    """Σ weight·x by output, for both halves of a SwiGLU; the first block of weights is loaded already."""
    cols_K = tl.arange(0, BLOCK_K)
    x_K = tl.load(x + cols_K).to(tl.float32)[None, :]
    acc_NK = w_NK.to(tl.float32) * x_K
    other_NK = up_NK.to(tl.float32) * x_K
    for k in tl.range(BLOCK_K, K, BLOCK_K, num_stages=NUM_STAGES):
        w_NK = _block(weight_NK + k, is_out_N, EVEN)
        if SWIGLU:
            up_NK = _block(weight_NK + second * K + k, is_out_N, EVEN)
        x_K = tl.load(x + k + cols_K).to(tl.float32)[None, :]
        acc_NK += w_NK.to(tl.float32) * x_K
        if SWIGLU:
            other_NK += up_NK.to(tl.float32) * x_K
    acc_N = tl.sum(acc_NK, 1)
    up_N = acc_N
    if SWIGLU:
        up_N = tl.sum(other_NK, 1)
    return acc_N, up_N


@triton.jit(do_not_specialize=["adapter_offset"])
def vector_linear(
    x,
    squares,
    weight,
    out,
    next_norm,
    next_scaled,
    shrunk,
    inputs,
    adapter_offset,
    eps,
    MAX_BATCH: tl.constexpr,
    K: tl.constexpr,
    N: tl.constexpr,
    NUM_SQUARES: tl.constexpr,
    BLOCK_SQUARES: tl.constexpr,
    MAX_SQUARES: tl.constexpr,
    EPILOGUE: tl.constexpr,
    MAX_RANK: tl.constexpr,
    NUM_PARTS: tl.constexpr,
    FIRST_END: tl.constexpr,
    SECOND_END: tl.constexpr,
    SHRUNK_STRIDE: tl.constexpr,
    SHRINK_BLOCKS: tl.constexpr,
    NUM_SHRINKING: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    NUM_STAGES: tl.constexpr,
    DEPENDENT: tl.constexpr,
):
    """`matrix_linear` for one row, without tensor cores: 4.2 TB/s of 4.4 on wide weights, where those reach 3.7.

    Fastest with 256 inputs to a block for each warp: then weights and x have the same layout over the threads.
    """
    SWIGLU: tl.constexpr = EPILOGUE == "swiglu"
    LORA: tl.constexpr = MAX_RANK > 0
    EVEN: tl.constexpr = N % BLOCK_N == 0  # and ranks are multiples of 16, which every block divides
    shrinks = tl.program_id(0) < NUM_SHRINKING
    block = tl.where(shrinks, tl.program_id(0), tl.program_id(0) - NUM_SHRINKING)
    outs_N = block * BLOCK_N + tl.arange(0, BLOCK_N)
    cols_K = tl.arange(0, BLOCK_K)
    place_NK = outs_N.to(tl.int64)[:, None] * K + cols_K[None, :]
    if NUM_SQUARES > 0:
        places_Q = tl.arange(0, BLOCK_SQUARES)
        is_square_Q = places_Q < NUM_SQUARES
    if LORA:
        num_adapters = tl.load(inputs + NUM_ADAPTERS * MAX_BATCH)
        rank = tl.load(inputs + ADAPTER_RANK_16 * MAX_BATCH) * 16
        matrices = _pointer(tl.load(inputs + ADAPTER_ADDRESS * MAX_BATCH), weight) + rank * adapter_offset
        if shrinks:
            num_shrunk = rank if SWIGLU else NUM_PARTS * rank
            if (num_adapters == 0) | (block * BLOCK_N >= num_shrunk):
                return
            is_out_N = outs_N < num_shrunk
            a_NK = matrices + place_NK
            w_NK = _block(a_NK, is_out_N, EVEN)
            up_NK = w_NK
            if SWIGLU:
                up_NK = _block(a_NK + rank * K, is_out_N, EVEN)
            if DEPENDENT:
                tl.extra.cuda.gdc_wait()
                tl.extra.cuda.gdc_launch_dependents()
            acc_N, up_N = _sums(w_NK, up_NK, x, a_NK, rank, is_out_N, K, SWIGLU, EVEN, BLOCK_K, NUM_STAGES)
            if NUM_SQUARES > 0:
                squares_Q = tl.load(squares + places_Q, mask=is_square_Q, other=0.0)
                norm_scale = tl.rsqrt(tl.sum(squares_Q, 0) / K + eps)
                acc_N *= norm_scale
                up_N *= norm_scale
            tl.store(shrunk + outs_N, acc_N.to(tl.int32, bitcast=True), mask=is_out_N)
            if SWIGLU:
                tl.store(shrunk + rank + outs_N, up_N.to(tl.int32, bitcast=True), mask=is_out_N)
            return

    is_out_N = outs_N < N
    weight_NK = weight + place_NK
    # Weights wait for nobody: the first of them are on their way before the kernel before this one ends.
    w_NK = _block(weight_NK, is_out_N, EVEN)
    up_NK = w_NK
    if SWIGLU:
        up_NK = _block(weight_NK + N * K, is_out_N, EVEN)
    if DEPENDENT:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    if LORA:
        ranks_R = tl.arange(0, MAX_RANK)
        is_rank_R = (ranks_R < rank) & (num_adapters > 0)
        part = _adapter_part(outs_N, NUM_PARTS, FIRST_END, SECOND_END)
        if SWIGLU:
            halves_P = tl.arange(0, 2)
        else:
            halves_P = tl.arange(0, 1)
        b_PNR = matrices + rank * (NUM_PARTS * K) + halves_P.to(tl.int64)[:, None, None] * N * rank
        b_PNR += outs_N.to(tl.int64)[None, :, None] * rank + ranks_R[None, None, :]
        b_PNR = tl.load(b_PNR, mask=is_out_N[None, :, None] & is_rank_R[None, None, :], other=0.0)
        shrunk_PR = shrunk + (part + halves_P)[:, None] * rank + ranks_R[None, :]
        # For most programs it is there by now; the others look again behind their sums.
        found_PR = tl.load(shrunk_PR, mask=is_rank_R[None, :], other=0, volatile=True)
    if NUM_SQUARES > 0:
        squares_Q = tl.load(squares + places_Q, mask=is_square_Q, other=0.0)
    acc_N, up_N = _sums(w_NK, up_NK, x, weight_NK, N, is_out_N, K, SWIGLU, EVEN, BLOCK_K, NUM_STAGES)
    if NUM_SQUARES > 0:
        norm_scale = tl.rsqrt(tl.sum(squares_Q, 0) / K + eps)
        acc_N *= norm_scale
        up_N *= norm_scale

    if LORA:
        x_PR = _awaited(found_PR, shrunk_PR, is_rank_R[None, :]) * _adapter_scale(inputs, 0, MAX_BATCH)
        delta_PN = tl.sum(b_PNR.to(tl.float32) * x_PR[:, None, :], 2)
        if SWIGLU:
            is_up_P1 = (halves_P > 0)[:, None]
            acc_N += tl.sum(tl.where(is_up_P1, 0.0, delta_PN), 0)
            up_N += tl.sum(tl.where(is_up_P1, delta_PN, 0.0), 0)
        else:
            acc_N += tl.sum(delta_PN, 0)

    if SWIGLU:
        acc_N = acc_N / (1 + tl.exp(-acc_N)) * up_N
    if EPILOGUE == "add":
        # Rounded before the sum too, as in the network itself.
        acc_N = acc_N.to(out.dtype.element_ty).to(tl.float32)
        acc_N += tl.load(out + outs_N, mask=is_out_N, other=0.0).to(tl.float32)
        acc_N = acc_N.to(out.dtype.element_ty).to(tl.float32)
        scaled_N = acc_N * tl.load(next_norm + outs_N, mask=is_out_N, other=0.0).to(tl.float32)
        tl.store(next_scaled + outs_N, scaled_N.to(out.dtype.element_ty), mask=is_out_N)
        tl.store(squares + block, tl.sum(tl.where(is_out_N, acc_N * acc_N, 0.0), 0))
    tl.store(out + outs_N, acc_N.to(out.dtype.element_ty), mask=is_out_N)


@triton.jit
def _dots(
    x_BK,
    weight_NK,
    second,
    is_row_B,
    is_out_N,
    K,
    SWIGLU: tl.constexpr,
    EVEN: tl.constexpr,
    BLOCK_B: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """x · weightᵀ, for both halves of a SwiGLU."""
    # Two sums, because each step of one waits for the step before: gate and up, or every other block of inputs.
    acc_BN = tl.zeros([BLOCK_B, BLOCK_N], tl.float32)
    other_BN = tl.zeros([BLOCK_B, BLOCK_N], tl.float32)
    if SWIGLU:
        for k in range(0, K, BLOCK_K):
            chunk_BK = tl.load(x_BK + k, mask=is_row_B[:, None], other=0.0)
            w_NK = _block(weight_NK + k, is_out_N, EVEN)
            acc_BN = tl.dot(chunk_BK, tl.trans(w_NK), acc_BN, input_precision="ieee")
            w_NK = _block(weight_NK + second * K + k, is_out_N, EVEN)
            other_BN = tl.dot(chunk_BK, tl.trans(w_NK), other_BN, input_precision="ieee")
    else:
        for k in range(0, K, 2 * BLOCK_K):
            chunk_BK = tl.load(x_BK + k, mask=is_row_B[:, None], other=0.0)
            w_NK = _block(weight_NK + k, is_out_N, EVEN)
            acc_BN = tl.dot(chunk_BK, tl.trans(w_NK), acc_BN, input_precision="ieee")
            chunk_BK = tl.load(x_BK + k + BLOCK_K, mask=is_row_B[:, None], other=0.0)
            w_NK = _block(weight_NK + k + BLOCK_K, is_out_N, EVEN)
            other_BN = tl.dot(chunk_BK, tl.trans(w_NK), other_BN, input_precision="ieee")
        acc_BN += other_BN
    return acc_BN, other_BN


@triton.jit
def _norm_scale(
    squares,
    is_row_B,
    K,
    eps,
    NUM_SQUARES: tl.constexpr,
    BLOCK_SQUARES: tl.constexpr,
    MAX_SQUARES: tl.constexpr,
    BLOCK_B: tl.constexpr,
):
    """1 / the root mean square of each row [B, 1]."""
    places_Q = tl.arange(0, BLOCK_SQUARES)[None, :]
    is_square_BQ = is_row_B[:, None] & (places_Q < NUM_SQUARES)
    square_BQ = squares + tl.arange(0, BLOCK_B)[:, None] * MAX_SQUARES + places_Q
    squares_B = tl.sum(tl.load(square_BQ, mask=is_square_BQ, other=0.0), 1)
    return tl.rsqrt(squares_B / K + eps)[:, None]


@triton.jit(do_not_specialize=["num_rows", "adapter_offset"])
def matrix_linear(
    x,
    squares,
    weight,
    out,
    next_norm,
    next_scaled,
    shrunk,
    inputs,
    num_rows,
    adapter_offset,
    eps,
    MAX_BATCH: tl.constexpr,
    K: tl.constexpr,
    N: tl.constexpr,
    NUM_SQUARES: tl.constexpr,
    BLOCK_SQUARES: tl.constexpr,
    MAX_SQUARES: tl.constexpr,
    EPILOGUE: tl.constexpr,
    MAX_RANK: tl.constexpr,
    NUM_PARTS: tl.constexpr,
    FIRST_END: tl.constexpr,
    SECOND_END: tl.constexpr,
    SHRUNK_STRIDE: tl.constexpr,
    SHRINK_BLOCKS: tl.constexpr,
    NUM_SHRINKING: tl.constexpr,
    BLOCK_B: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """out [B, N] = f(x [B, K] · weight [N, K]ᵀ), one block of outputs per program.

    NUM_SQUARES > 0: x still has to be divided by its root mean square, of which `squares` [B, NUM_SQUARES] holds parts;
    the norm's weight is in it already. EPILOGUE: `store`; `add` to what is in `out`, leaving in `next_scaled` and
    `squares` what the norm behind needs; `swiglu`, where the weight has 2·N rows, gate before up.

    MAX_RANK > 0: with the rows' adapters, of whose flat buffers this product's matrices begin at rank·adapter_offset:
    A [NUM_PARTS·rank, K], then B [all outputs, rank]. Part p of the outputs, up to FIRST_END and SECOND_END, uses rows
    p·rank.. of A. The first NUM_SHRINKING programs, SHRINK_BLOCKS for each adapter, compute `shrunk` = A·x.
    """
    SWIGLU: tl.constexpr = EPILOGUE == "swiglu"
    LORA: tl.constexpr = MAX_RANK > 0
    EVEN: tl.constexpr = N % BLOCK_N == 0
    rows_B = tl.arange(0, BLOCK_B)
    is_row_B = rows_B < num_rows
    x_BK = x + rows_B[:, None] * K + tl.arange(0, BLOCK_K)[None, :]
    if LORA:
        num_adapters = tl.load(inputs + NUM_ADAPTERS * MAX_BATCH).to(tl.int32)
        adapter_B = tl.load(inputs + ADAPTER * MAX_BATCH + rows_B, mask=is_row_B, other=-1)
        if tl.program_id(0) < NUM_SHRINKING:
            adapter = tl.program_id(0) // SHRINK_BLOCKS
            rank = tl.load(inputs + ADAPTER_RANK_16 * MAX_BATCH + adapter) * 16
            num_shrunk = rank if SWIGLU else NUM_PARTS * rank
            first = (tl.program_id(0) % SHRINK_BLOCKS) * BLOCK_N
            if (adapter >= num_adapters) | (first >= num_shrunk):
                return
            a = _pointer(tl.load(inputs + ADAPTER_ADDRESS * MAX_BATCH + adapter), weight) + rank * adapter_offset
            outs_N = first + tl.arange(0, BLOCK_N)
            is_out_N = outs_N < num_shrunk
            a_NK = a + outs_N.to(tl.int64)[:, None] * K + tl.arange(0, BLOCK_K)[None, :]
            acc_BN, other_BN = _dots(x_BK, a_NK, rank, is_row_B, is_out_N, K, SWIGLU, False, BLOCK_B, BLOCK_N, BLOCK_K)
            if NUM_SQUARES > 0:
                norm_scale_B = _norm_scale(squares, is_row_B, K, eps, NUM_SQUARES, BLOCK_SQUARES, MAX_SQUARES, BLOCK_B)
                acc_BN *= norm_scale_B
                other_BN *= norm_scale_B
            shrunk_BN = shrunk + rows_B[:, None] * SHRUNK_STRIDE + outs_N[None, :]
            is_mine_BN = (adapter_B == adapter)[:, None] & is_out_N[None, :]
            tl.store(shrunk_BN, acc_BN.to(tl.int32, bitcast=True), mask=is_mine_BN)
            if SWIGLU:
                tl.store(shrunk_BN + rank, other_BN.to(tl.int32, bitcast=True), mask=is_mine_BN)
            return

    block = tl.program_id(0) - NUM_SHRINKING
    outs_N = block * BLOCK_N + tl.arange(0, BLOCK_N)
    is_out_N = outs_N < N
    weight_NK = weight + outs_N.to(tl.int64)[:, None] * K + tl.arange(0, BLOCK_K)[None, :]
    acc_BN, other_BN = _dots(x_BK, weight_NK, N, is_row_B, is_out_N, K, SWIGLU, EVEN, BLOCK_B, BLOCK_N, BLOCK_K)
    if NUM_SQUARES > 0:
        norm_scale_B = _norm_scale(squares, is_row_B, K, eps, NUM_SQUARES, BLOCK_SQUARES, MAX_SQUARES, BLOCK_B)
        acc_BN *= norm_scale_B
        other_BN *= norm_scale_B

    if LORA:
        ranks_R = tl.arange(0, MAX_RANK)
        part = _adapter_part(outs_N, NUM_PARTS, FIRST_END, SECOND_END)
        for worn in range(num_adapters):
            rank = tl.load(inputs + ADAPTER_RANK_16 * MAX_BATCH + worn) * 16
            b_NR = _pointer(tl.load(inputs + ADAPTER_ADDRESS * MAX_BATCH + worn), weight)
            b_NR += rank * (adapter_offset + NUM_PARTS * K)
            b_NR += outs_N.to(tl.int64)[:, None] * rank + ranks_R[None, :]
            is_b_NR = is_out_N[:, None] & (ranks_R < rank)[None, :]
            first_NR = tl.load(b_NR, mask=is_b_NR, other=0.0)
            second_NR = first_NR
            if SWIGLU:
                second_NR = tl.load(b_NR + N * rank, mask=is_b_NR, other=0.0)
            scale = _adapter_scale(inputs, worn, MAX_BATCH)
            shrunk_BR = shrunk + rows_B[:, None] * SHRUNK_STRIDE + part * rank + ranks_R[None, :]
            is_mine_BR = (adapter_B == worn)[:, None] & (ranks_R < rank)[None, :]
            found_BR = tl.load(shrunk_BR, mask=is_mine_BR, other=0, volatile=True)
            if SWIGLU:
                found_up_BR = tl.load(shrunk_BR + rank, mask=is_mine_BR, other=0, volatile=True)
            x_BR = (_awaited(found_BR, shrunk_BR, is_mine_BR) * scale).to(first_NR.dtype)
            acc_BN = tl.dot(x_BR, tl.trans(first_NR), acc_BN, input_precision="ieee")
            if SWIGLU:
                x_BR = (_awaited(found_up_BR, shrunk_BR + rank, is_mine_BR) * scale).to(second_NR.dtype)
                other_BN = tl.dot(x_BR, tl.trans(second_NR), other_BN, input_precision="ieee")

    out_BN = out + rows_B[:, None] * N + outs_N[None, :]
    is_kept_BN = is_row_B[:, None] & is_out_N[None, :]
    if SWIGLU:
        acc_BN = acc_BN / (1 + tl.exp(-acc_BN)) * other_BN
    if EPILOGUE == "add":
        # Rounded before the sum too, as in the network itself.
        acc_BN = acc_BN.to(out.dtype.element_ty).to(tl.float32)
        acc_BN += tl.load(out_BN, mask=is_kept_BN, other=0.0).to(tl.float32)
        acc_BN = acc_BN.to(out.dtype.element_ty).to(tl.float32)
        scaled_BN = acc_BN * tl.load(next_norm + outs_N, mask=is_out_N, other=0.0).to(tl.float32)[None, :]
        next_scaled_BN = next_scaled + rows_B[:, None] * N + outs_N[None, :]
        tl.store(next_scaled_BN, scaled_BN.to(out.dtype.element_ty), mask=is_kept_BN)
        square_B = tl.sum(tl.where(is_kept_BN, acc_BN * acc_BN, 0.0), 1)
        tl.store(squares + rows_B * MAX_SQUARES + block, square_B, mask=is_row_B)
    tl.store(out_BN, acc_BN.to(out.dtype.element_ty), mask=is_kept_BN)


@triton.jit
def _chunk(num_cached, NUM_SPLITS: tl.constexpr, BLOCK_C: tl.constexpr):
    """How many cached tokens a split takes: the work of a short strand is spread too, that of a long one evenly."""
    return tl.cdiv(tl.cdiv(num_cached, NUM_SPLITS), BLOCK_C) * BLOCK_C


@triton.jit
def _turned(head, norm, cos_D, sin_D, eps, is_head, QK_NORM: tl.constexpr, D: tl.constexpr):
    """Query or key heads [X, D] at `head` [X, 1], normed and turned by their position, in float32."""
    dims_D = tl.arange(0, D)[None, :]
    swapped_D = (dims_D + D // 2) % D
    x_XD = tl.load(head + dims_D, mask=is_head, other=0.0).to(tl.float32)
    swapped_XD = tl.load(head + swapped_D, mask=is_head, other=0.0).to(tl.float32)
    if QK_NORM:
        scale_X = tl.rsqrt(tl.sum(x_XD * x_XD, 1) / D + eps)[:, None]
        x_XD = x_XD * scale_X * tl.load(norm + dims_D).to(tl.float32)
        swapped_XD = swapped_XD * scale_X * tl.load(norm + swapped_D).to(tl.float32)
    return x_XD * cos_D + swapped_XD * tl.where(dims_D < D // 2, -sin_D, sin_D)


@triton.jit(do_not_specialize=["layer"])
def attend(
    qkv,
    q_norm,
    k_norm,
    cos,
    sin,
    inputs,
    partial,
    partial_lse,
    layer,
    eps,
    MAX_BATCH: tl.constexpr,
    NUM_HEADS: tl.constexpr,
    NUM_KV_HEADS: tl.constexpr,
    D: tl.constexpr,
    QK_NORM: tl.constexpr,
    NUM_SPLITS: tl.constexpr,
    BLOCK_G: tl.constexpr,
    BLOCK_C: tl.constexpr,
    NUM_STAGES: tl.constexpr,
):
    """The query heads of one key/value head over one split of a row's cached tokens; `combine` joins the splits.

    The last split also sees the new token itself, from `qkv`, and writes its key and value into the strand.
    Axes: G the query heads of a key/value head, C cached tokens.
    """
    GROUP: tl.constexpr = NUM_HEADS // NUM_KV_HEADS
    dtype: tl.constexpr = qkv.dtype.element_ty
    row = tl.program_id(0) // NUM_KV_HEADS
    kv_head = tl.program_id(0) % NUM_KV_HEADS
    split = tl.program_id(1)
    # All that can be loaded without knowing anything comes first: one round trip to memory instead of three.
    num_cached = tl.load(inputs + POSITION * MAX_BATCH + row).to(tl.int32)
    capacity = tl.load(inputs + KV_CAPACITY * MAX_BATCH + row)
    address = tl.load(inputs + KV_ADDRESS * MAX_BATCH + row)
    dims_D = tl.arange(0, D)
    half_D = (dims_D % (D // 2))[None, :]
    # Rounded as the network rounds them: prefill and trainer turn by the same angles.
    cos_D = tl.load(cos + row * (D // 2) + half_D).to(dtype).to(tl.float32)
    sin_D = tl.load(sin + row * (D // 2) + half_D).to(dtype).to(tl.float32)
    heads_G = tl.arange(0, BLOCK_G)
    first = qkv + row * (NUM_HEADS + 2 * NUM_KV_HEADS) * D
    q_head = first + (kv_head * GROUP + heads_G)[:, None] * D
    q_GD = _turned(q_head, q_norm, cos_D, sin_D, eps, (heads_G < GROUP)[:, None], QK_NORM, D).to(dtype)

    chunk = _chunk(num_cached, NUM_SPLITS, BLOCK_C)
    start = split * chunk
    end = tl.minimum(start + chunk, num_cached)
    if (start >= end) & (split > 0):
        return
    keys = _pointer(address, qkv) + ((layer * 2).to(tl.int64) * NUM_KV_HEADS + kv_head) * capacity * D
    values = keys + NUM_KV_HEADS * capacity * D
    scale: tl.constexpr = D**-0.5 * _LOG2_E  # exponents of 2 below
    max_G = tl.full([BLOCK_G], float("-inf"), tl.float32)
    mass_G = tl.zeros([BLOCK_G], tl.float32)
    acc_GD = tl.zeros([BLOCK_G, D], tl.float32)
    if end == num_cached:
        one = tl.arange(0, 1)[:, None]
        k_head = first + (NUM_HEADS + kv_head) * D + one
        k_1D = _turned(k_head, k_norm, cos_D, sin_D, eps, one == 0, QK_NORM, D).to(dtype)
        v_1D = tl.load(first + (NUM_HEADS + NUM_KV_HEADS + kv_head) * D + dims_D[None, :])
        place = num_cached.to(tl.int64) * D + dims_D[None, :]
        tl.store(keys + place, k_1D)
        tl.store(values + place, v_1D)
        max_G = tl.sum(q_GD.to(tl.float32) * k_1D.to(tl.float32), 1) * scale
        mass_G += 1.0
        acc_GD += v_1D.to(tl.float32)
    tokens_C = tl.arange(0, BLOCK_C)
    for c in tl.range(start, end, BLOCK_C, num_stages=NUM_STAGES):
        is_token_C = c + tokens_C < end
        place_CD = (c + tokens_C).to(tl.int64)[:, None] * D + dims_D[None, :]
        k_CD = tl.load(keys + place_CD, mask=is_token_C[:, None], other=0.0)
        s_GC = tl.dot(q_GD, tl.trans(k_CD), input_precision="ieee") * scale
        s_GC = tl.where(is_token_C[None, :], s_GC, float("-inf"))
        new_max_G = tl.maximum(max_G, tl.max(s_GC, 1))
        fade_G = tl.exp2(max_G - new_max_G)
        p_GC = tl.exp2(s_GC - new_max_G[:, None])
        mass_G = mass_G * fade_G + tl.sum(p_GC, 1)
        v_CD = tl.load(values + place_CD, mask=is_token_C[:, None], other=0.0)
        acc_GD = tl.dot(p_GC.to(dtype), v_CD, acc_GD * fade_G[:, None], input_precision="ieee")
        max_G = new_max_G
    slot_G = (row * NUM_HEADS + kv_head * GROUP + heads_G) * NUM_SPLITS + split
    tl.store(partial + slot_G[:, None] * D + dims_D[None, :], acc_GD / mass_G[:, None], mask=(heads_G < GROUP)[:, None])
    tl.store(partial_lse + slot_G, max_G + tl.log2(mass_G), mask=heads_G < GROUP)


@triton.jit
def combine(
    partial,
    partial_lse,
    inputs,
    out,
    MAX_BATCH: tl.constexpr,
    NUM_HEADS: tl.constexpr,
    D: tl.constexpr,
    NUM_SPLITS: tl.constexpr,
    BLOCK_C: tl.constexpr,
    DEPENDENT: tl.constexpr,
):
    """The splits of one query head, weighed by their masses -> out [B, heads·D]. Axis: S splits."""
    head = tl.program_id(0)
    row = head // NUM_HEADS
    num_cached = tl.load(inputs + POSITION * MAX_BATCH + row).to(tl.int32)
    num_used = tl.maximum(1, tl.cdiv(num_cached, tl.maximum(_chunk(num_cached, NUM_SPLITS, BLOCK_C), 1)))
    splits_S = tl.arange(0, NUM_SPLITS)
    dims_D = tl.arange(0, D)
    is_used_S = splits_S < num_used
    if DEPENDENT:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    slot_S = head * NUM_SPLITS + splits_S
    lse_S = tl.load(partial_lse + slot_S, mask=is_used_S, other=float("-inf"))
    weight_S = tl.exp2(lse_S - tl.max(lse_S, 0))
    partial_SD = tl.load(partial + slot_S[:, None] * D + dims_D[None, :], mask=is_used_S[:, None], other=0.0)
    out_D = tl.sum(partial_SD * weight_S[:, None], 0) / tl.sum(weight_S, 0)
    tl.store(out + head * D + dims_D, out_D.to(out.dtype.element_ty))


@triton.jit
def _temperature(inputs, row, MAX_BATCH: tl.constexpr):
    """0 means greedy, whose log-probs are those of temperature 1."""
    given = tl.load(inputs + TEMPERATURE * MAX_BATCH + row).to(tl.float64, bitcast=True).to(tl.float32)
    return tl.where(given == 0.0, 1.0, given)


@triton.jit
def weigh(
    logits,
    inputs,
    tile_max,
    tile_best,
    tile_mass,
    MAX_BATCH: tl.constexpr,
    V: tl.constexpr,
    TILE: tl.constexpr,
    DEPENDENT: tl.constexpr,
):
    """Of one tile of a row's logits: the largest, where it is, and the sum of exp(logit/T - largest/T)."""
    row, tile = tl.program_id(0), tl.program_id(1)
    if DEPENDENT:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    ids_V = tile * TILE + tl.arange(0, TILE)
    z_V = tl.load(logits + row.to(tl.int64) * V + ids_V, mask=ids_V < V, other=float("-inf"))
    largest, best = tl.max(z_V, 0, return_indices=True)
    temperature = _temperature(inputs, row, MAX_BATCH)
    place = row * tl.num_programs(1) + tile
    tl.store(tile_max + place, largest / temperature)
    tl.store(tile_best + place, tile * TILE + best)
    tl.store(tile_mass + place, tl.sum(tl.exp(z_V / temperature - largest / temperature).to(tl.float64), 0))


@triton.jit
def draw(
    logits,
    inputs,
    tile_max,
    tile_best,
    tile_mass,
    drawn,
    MAX_BATCH: tl.constexpr,
    V: tl.constexpr,
    TILE: tl.constexpr,
    NUM_TILES: tl.constexpr,
    BLOCK_T: tl.constexpr,
    DEPENDENT: tl.constexpr,
):
    """One token of a row and its log-prob -> drawn [2, MAX_BATCH] in float64.

    The token is the first whose cumulative probability passes the row's uniform number, as in `sampling.py`: first the
    tile is found, then the place in it. Sums are float64, because float32 would move the slices. Axis: T tiles.
    """
    row = tl.program_id(0)
    if DEPENDENT:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    tiles_T = tl.arange(0, BLOCK_T)
    is_tile_T = tiles_T < NUM_TILES
    max_T = tl.load(tile_max + row * NUM_TILES + tiles_T, mask=is_tile_T, other=float("-inf"))
    mass_T = tl.load(tile_mass + row * NUM_TILES + tiles_T, mask=is_tile_T, other=0.0)
    largest, best_tile = tl.max(max_T, 0, return_indices=True)
    mass_T = mass_T * tl.exp(max_T - largest).to(tl.float64)
    total = tl.sum(mass_T, 0)

    temperature = _temperature(inputs, row, MAX_BATCH)
    greedy = tl.load(inputs + TEMPERATURE * MAX_BATCH + row) << 1 == 0  # the bits of 0.0 or -0.0
    target = tl.load(inputs + UNIFORM * MAX_BATCH + row).to(tl.float64, bitcast=True) * total
    ends_T = tl.cumsum(mass_T, 0)
    last_tile = tl.max(tl.where(mass_T > 0, tiles_T, 0), 0)
    tile = tl.minimum(tl.sum(((ends_T <= target) & is_tile_T).to(tl.int32), 0), last_tile)
    before = tl.sum(tl.where(tiles_T < tile, mass_T, 0.0), 0)

    within_V = tl.arange(0, TILE)
    ids_V = tile * TILE + within_V
    row_logits = logits + row.to(tl.int64) * V
    z_V = tl.load(row_logits + ids_V, mask=ids_V < V, other=float("-inf")) / temperature
    p_V = tl.exp(z_V - largest).to(tl.float64)
    last = tl.max(tl.where(p_V > 0, within_V, 0), 0)
    place = tl.sum((before + tl.cumsum(p_V, 0) <= target).to(tl.int32), 0)
    token = tile * TILE + tl.minimum(place, last)
    if greedy:
        token = tl.load(tile_best + row * NUM_TILES + best_tile)
    token = tl.minimum(token, V - 1)
    z = tl.load(row_logits + token) / temperature
    tl.store(drawn + row, token.to(tl.float64))
    tl.store(drawn + MAX_BATCH + row, (z - largest).to(tl.float64) - tl.log(total))
