"""The source of a module -> faults that a person could have made. Pure; it knows nothing of tests.

    if width <= 0:          comparison        if width < 0:
        return default      returned value        return None
    return name[:limit]     off by one        return name[:limit + 1]

Each operator is a function from a node of the syntax tree to edits of the text, so that everything else in the file
stays as it was, comments and layout too. Faults are only made inside functions, and never in annotations or docstrings.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

_Edit = tuple[int, int, str]
"""Start and end in the UTF-8 source, and what stands there instead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What could be wrong: of which kind, in which function, and the bytes of the source that are others then."""

    operator: str
    function: str
    start: int
    end: int
    text: str


class _Module:
    """A parsed module, with offsets in place of lines and columns."""

    def __init__(self, source: str) -> None:
        self.data = source.encode()
        self.tree = _parse(source)
        self._starts = [0]
        for line in self.data.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))

    def start(self, node: ast.stmt | ast.expr | ast.keyword) -> int:
        return self._starts[node.lineno - 1] + node.col_offset

    def end(self, node: ast.stmt | ast.expr | ast.keyword) -> int:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self._starts[node.end_lineno - 1] + node.end_col_offset

    def text(self, node: ast.stmt | ast.expr | ast.keyword) -> str:
        return self.data[self.start(node) : self.end(node)].decode()

    def between(self, left: ast.expr, right: ast.expr, token: str, other: str) -> Iterator[_Edit]:
        """The one place between two operands where their operator stands."""
        begin, end = self.end(left), self.start(right)
        alone = rb"(?<![\w=<>!*/+-])" + re.escape(token.encode()) + rb"(?![\w=<>*/])"
        found = list(re.finditer(alone, self.data[begin:end]))
        if len(found) == 1:
            yield begin + found[0].start(), begin + found[0].end(), other


_COMPARED: Mapping[type[ast.cmpop], tuple[str, tuple[str, ...]]] = {
    ast.Eq: ("==", ("!=",)),
    ast.NotEq: ("!=", ("==",)),
    ast.Lt: ("<", ("<=", ">")),
    ast.LtE: ("<=", ("<", ">=")),
    ast.Gt: (">", (">=", "<")),
    ast.GtE: (">=", (">", "<=")),
    ast.Is: ("is", ("is not",)),
    ast.In: ("in", ("not in",)),
}
_CALCULATED: Mapping[type[ast.operator], tuple[str, tuple[str, ...]]] = {
    ast.Add: ("+", ("-",)),
    ast.Sub: ("-", ("+",)),
    ast.Mult: ("*", ("//", "+")),
    ast.Div: ("/", ("*",)),
    ast.FloorDiv: ("//", ("*", "/")),
    ast.Mod: ("%", ("//",)),
    ast.BitAnd: ("&", ("|",)),
    ast.BitOr: ("|", ("&",)),
}
_DESCRIBING = ("annotation", "returns", "decorator_list", "bases", "type_params")


def _comparison(module: _Module, node: ast.AST) -> Iterator[_Edit]:
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        token, others = _COMPARED.get(type(node.ops[0]), ("", ()))
        for other in others:
            yield from module.between(node.left, node.comparators[0], token, other)


def _arithmetic(module: _Module, node: ast.AST) -> Iterator[_Edit]:
    if isinstance(node, ast.BinOp) and not _is_text(node.left):
        token, others = _CALCULATED.get(type(node.op), ("", ()))
        for other in others:
            yield from module.between(node.left, node.right, token, other)


def _logic(module: _Module, node: ast.AST) -> Iterator[_Edit]:
    if isinstance(node, ast.BoolOp):
        token, other = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
        if len(node.values) == 2:
            yield from module.between(node.values[0], node.values[1], token, other)
        for value in node.values:
            yield module.start(node), module.end(node), module.text(value)


def _condition(module: _Module, node: ast.AST) -> Iterator[_Edit]:
    """Branches swap by their condition, negated."""
    if isinstance(node, ast.If | ast.IfExp | ast.While):
        yield module.start(node.test), module.end(node.test), f"not ({module.text(node.test)})"
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield module.start(node), module.end(node), module.text(node.operand)


def _flipped(module: _Module, node: ast.AST) -> Iterator[_Edit]:
    if isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield module.start(node), module.end(node), str(not node.value)


def _off_by_one(module: _Module, node: ast.AST) -> Iterator[_Edit]:
    if isinstance(node, ast.Constant) and type(node.value) is int and module.text(node).isdigit():
        yield module.start(node), module.end(node), str(node.value + 1)
        if node.value > 0:
            yield module.start(node), module.end(node), str(node.value - 1)
    if isinstance(node, ast.Slice):
        for bound in (node.lower, node.upper):
            if bound is not None and not isinstance(bound, ast.Constant):
                yield module.start(bound), module.end(bound), f"{module.text(bound)} + 1"


def _slice(module: _Module, node: ast.AST) -> Iterator[_Edit]:
    if isinstance(node, ast.Slice):
        for bound in (node.lower, node.upper):
            if bound is not None:
                yield module.start(bound), module.end(bound), ""


def _lost_statement(module: _Module, node: ast.AST) -> Iterator[_Edit]:
    calls = isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
    if calls or isinstance(node, ast.AugAssign | ast.Raise | ast.Continue | ast.Break | ast.Delete):
        assert isinstance(node, ast.stmt)
        yield module.start(node), module.end(node), "pass"
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript | ast.Attribute):
        yield module.start(node), module.end(node), "pass"


def _returned(module: _Module, node: ast.AST) -> Iterator[_Edit]:
    if isinstance(node, ast.Return) and node.value is not None and not _is_none(node.value):
        yield module.start(node.value), module.end(node.value), "None"
        if isinstance(node.value, ast.Call) and len(node.value.args) == 1 and not node.value.keywords:
            yield module.start(node.value), module.end(node.value), module.text(node.value.args[0])


def _keyword(module: _Module, node: ast.AST) -> Iterator[_Edit]:
    if isinstance(node, ast.Call):
        for keyword in node.keywords:
            before = module.data[: module.start(keyword)].rstrip()
            if keyword.arg and before.endswith(b","):
                yield len(before) - 1, module.end(keyword), ""


def _arguments(module: _Module, node: ast.AST) -> Iterator[_Edit]:
    """Two positional arguments change places."""
    if isinstance(node, ast.Call) and len(node.args) == 2 and not any(isinstance(a, ast.Starred) for a in node.args):
        one, other = node.args
        gap = module.data[module.end(one) : module.start(other)].decode()
        yield module.start(one), module.end(other), f"{module.text(other)}{gap}{module.text(one)}"


def _default(module: _Module, node: ast.AST) -> Iterator[_Edit]:
    if isinstance(node, ast.arguments):
        for value in (*node.defaults, *node.kw_defaults):
            if isinstance(value, ast.Constant) and isinstance(value.value, str) and value.value:
                yield module.start(value), module.end(value), '""'


def _loop(module: _Module, node: ast.AST) -> Iterator[_Edit]:
    if isinstance(node, ast.Break | ast.Continue):
        yield module.start(node), module.end(node), "continue" if isinstance(node, ast.Break) else "break"


OPERATORS: Mapping[str, Callable[[_Module, ast.AST], Iterator[_Edit]]] = {
    "comparison": _comparison,
    "arithmetic": _arithmetic,
    "logic": _logic,
    "condition": _condition,
    "flipped": _flipped,
    "off by one": _off_by_one,
    "slice": _slice,
    "lost statement": _lost_statement,
    "returned value": _returned,
    "keyword": _keyword,
    "arguments": _arguments,
    "default": _default,
    "loop": _loop,
}


def find_faults(source: str) -> list[Fault]:
    """All faults that we can think of in a module, in the order of its text. SyntaxError if it is none."""
    module = _Module(source)
    return [
        Fault(operator=operator, function=function, start=start, end=end, text=text)
        for function, node in _nodes(module.tree, "", is_inside=False)
        for operator, edits in OPERATORS.items()
        for start, end, text in edits(module, node)
    ]


def with_fault(source: str, fault: Fault) -> str | None:
    """The module with the fault; None where that is no program, or the same one."""
    data = source.encode()
    faulty = (data[: fault.start] + fault.text.encode() + data[fault.end :]).decode()
    try:
        is_another = ast.dump(_parse(faulty)) != ast.dump(_parse(source))
    except SyntaxError:
        return None
    return faulty if is_another else None


def _parse(source: str) -> ast.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the code of others
        return ast.parse(source)


def _nodes(tree: ast.AST, function: str, *, is_inside: bool) -> Iterator[tuple[str, ast.AST]]:
    """The nodes inside functions, each with its function's name. Positions inside f-strings are not exact in 3.11."""
    for field, value in ast.iter_fields(tree):
        if field in _DESCRIBING:
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                name = f"{function}.{child.name}" if function else child.name
                yield from _nodes(child, name, is_inside=is_inside or not isinstance(child, ast.ClassDef))
            elif isinstance(child, ast.AST) and not isinstance(child, ast.JoinedStr):
                if is_inside:
                    yield function, child
                yield from _nodes(child, function, is_inside=is_inside)


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None
