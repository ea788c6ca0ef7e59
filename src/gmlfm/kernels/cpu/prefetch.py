"""Rows asked of memory some time before they are read: a step's rows lie anywhere in the table, which no processor foresees."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

_LINE = 64  # bytes
_WRITE, _KEEP, _DATA = 1, 3, 1  # as llvm.prefetch has them
_intrinsic: Any = intrinsic


@_intrinsic  # type: ignore[untyped-decorator, unused-ignore]
def prefetch_row(typing_context: Any, array: Any, row: Any) -> Any:
    """Row `row` of a matrix, to be written: (array, row) -> None. The row must exist."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        matrix = context.make_array(signature.args[0])(context, builder, arguments[0])
        long, number = ir.IntType(64), context.cast(builder, arguments[1], signature.args[1], types.int64)
        row_bytes = builder.extract_value(matrix.strides, 0)
        start = builder.add(builder.ptrtoint(matrix.data, long), builder.mul(number, row_bytes))
        byte, int32 = ir.IntType(8).as_pointer(), ir.IntType(32)
        arguments_of_llvm = [byte, int32, int32, int32]
        fetch = builder.module.declare_intrinsic("llvm.prefetch", [byte], ir.FunctionType(ir.VoidType(), arguments_of_llvm))
        with cgutils.for_range_slice(builder, long(0), row_bytes, long(_LINE), inc=True) as (offset, _):
            address = builder.inttoptr(builder.add(start, offset), byte)
            builder.call(fetch, [address, int32(_WRITE), int32(_KEEP), int32(_DATA)])
        return context.get_dummy_value()

    return types.void(array, row), generate
