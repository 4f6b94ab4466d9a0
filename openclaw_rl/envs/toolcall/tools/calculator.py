"""An arithmetic expression -> its value. It reads the expression's syntax tree and evaluates nothing else.

    (12 + 30) / 4   ->  10.5          2 ** 100000  ->  a fault: the result is too large

Whole numbers stay exact. No result may have more than `MAX_BITS` bits, so no expression takes long.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping

from openclaw_rl.envs.toolcall.tools.toolbox import Arguments, CallFault, OwnTool, parameters
from openclaw_rl.types import Tool

Number = int | float

MAX_CHARS = 300
MAX_BITS = 4096
_MAX_FACTORIAL = 400
_MAX_EXACT_FLOAT = 1e15

_SIGNS = str.maketrans({"×": "*", "÷": "/", "−": "-", "–": "-"})
_CONSTANTS: Mapping[str, float] = {"pi": math.pi, "e": math.e}


def _power(base: Number, exponent: Number) -> Number:
    if isinstance(base, int) and isinstance(exponent, int) and base.bit_length() * exponent > MAX_BITS:
        raise OverflowError
    if base < 0 and not float(exponent).is_integer():
        raise CallFault("The root of a negative number is not a real number.")
    power: Number = base**exponent
    return power


def factorial(number: Number) -> int:
    if not isinstance(number, int) or not 0 <= number <= _MAX_FACTORIAL:
        raise CallFault(f"factorial takes a whole number from 0 to {_MAX_FACTORIAL}.")
    return math.factorial(number)


_BINARY: Mapping[type[ast.operator], Callable[[Number, Number], Number]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: _power,
    ast.BitXor: _power,
}
_UNARY: Mapping[type[ast.unaryop], Callable[[Number], Number]] = {ast.UAdd: operator.pos, ast.USub: operator.neg}
_FUNCTIONS: Mapping[str, Callable[..., Number]] = {
    **{each.__name__: each for each in (abs, round, min, max, factorial)},
    **{each.__name__: each for each in (math.sqrt, math.floor, math.ceil, math.gcd, math.lcm)},
    **{each.__name__: each for each in (math.exp, math.log, math.log10, math.sin, math.cos, math.tan)},
}


def calculate(expression: str) -> str:
    """`CallFault` where it is no expression, has no value, or one that is too large."""
    if len(expression) > MAX_CHARS:
        raise CallFault(f"The expression has {len(expression)} characters; at most {MAX_CHARS} are allowed.")
    try:
        tree = ast.parse(expression.translate(_SIGNS).strip(), mode="eval")
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        raise CallFault(
            f"{expression!r} is not an arithmetic expression. Write one such as (2 + 3) * 4, without words, units, "
            "equals signs or commas inside numbers."
        ) from None
    try:
        return _written(_value(tree.body))
    except ZeroDivisionError:
        raise CallFault("The expression divides by zero.") from None
    except OverflowError:
        raise CallFault("The result is too large.") from None
    except (ValueError, TypeError) as error:
        raise CallFault(f"The expression has no value: {error}.") from None


def _value(node: ast.expr) -> Number:
    match node:
        case ast.Constant(value=bool()):
            pass
        case ast.Constant(value=int() | float() as number):
            return _bounded(number)
        case ast.BinOp() if type(node.op) in _BINARY:
            return _bounded(_BINARY[type(node.op)](_value(node.left), _value(node.right)))
        case ast.UnaryOp() if type(node.op) in _UNARY:
            return _UNARY[type(node.op)](_value(node.operand))
        case ast.Name(id=name) if name in _CONSTANTS:
            return _CONSTANTS[name]
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if name in _FUNCTIONS:
            return _bounded(_FUNCTIONS[name](*map(_value, arguments)))
        case _:
            pass
    raise CallFault(
        f"{ast.unparse(node)!r} cannot be calculated. Use numbers, + - * / // % **, parentheses, pi, e, "
        f"and {', '.join(_FUNCTIONS)}."
    )


def _bounded(value: Number) -> Number:
    if isinstance(value, int) and value.bit_length() > MAX_BITS:
        raise OverflowError
    return value


def _written(value: Number) -> str:
    if isinstance(value, int):
        return str(value)
    if not math.isfinite(value):
        raise OverflowError
    return str(int(value)) if value.is_integer() and abs(value) < _MAX_EXACT_FLOAT else f"{value:.12g}"


def _call(arguments: Arguments) -> str:
    return calculate(arguments["expression"])


CALCULATOR = OwnTool(
    tool=Tool(
        name="calculator",
        description="Calculate the value of an arithmetic expression.",
        parameters=parameters({"expression": {"type": "string", "description": "For example (2 + 3) * 4"}}),
    ),
    function=_call,
)
