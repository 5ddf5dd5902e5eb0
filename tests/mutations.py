"""Single changes to Python source that a test should notice, each by its position: what ``make mutants`` plants."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

_COMPARED = {
    b"<": b"<=", b"<=": b"<", b">": b">=", b">=": b">", b"==": b"!=", b"!=": b"==",
    b"is": b"is not", b"is not": b"is", b"in": b"not in", b"not in": b"in",
}  # fmt: skip
_OPERATOR = re.compile(rb"\bis\s+not\b|\bnot\s+in\b|\bis\b|\bin\b|<=|>=|==|!=|<|>")
_EXTREMES = {"min": b"max", "max": b"min", "minimum": b"maximum", "maximum": b"minimum"}
_LOGGERS = {"log", "logger", "logging", "warnings"}


class Mutant(NamedTuple):
    """Bytes of a file to replace; ``line`` counts from 1, and ``test`` is the one that should notice, if it is known."""

    path: str
    line: int
    kind: str
    start: int
    stop: int
    text: bytes
    test: str = ""

    def apply(self, source: bytes) -> bytes:
        """The file with the bug in it."""
        return source[: self.start] + self.text + source[self.stop :]

    def shown(self, source: bytes) -> tuple[str, str]:
        """The lines that change, before and after, each as one line."""
        first = source.rfind(b"\n", 0, self.start) + 1
        last = source.find(b"\n", self.stop)
        last = len(source) if last < 0 else last
        changed = source[first : self.start] + self.text + source[self.stop : last]
        before, after = (" ".join(part.decode("utf-8", "replace").split()) for part in (source[first:last], changed))
        return before, after

    def described(self, source: bytes) -> dict[str, Any]:
        """Where it is and what it changes."""
        before, after = self.shown(source)
        return {"file": self.path, "line": self.line, "kind": self.kind, "before": before, "after": after}


def mutants(path: str, source: bytes) -> list[Mutant]:
    """All mutants of a file, in the order of their positions; a few do not compile."""
    found = _Finder(path, source)
    found.visit(ast.parse(source))
    return sorted(set(found.found), key=lambda m: (m.start, m.stop, m.text))


def compiles(mutant: Mutant, source: bytes) -> bool:
    """Whether a mutant is a program at all."""
    try:
        compile(mutant.apply(source), mutant.path, "exec")
    except (SyntaxError, ValueError):
        return False
    return True


class _Finder(ast.NodeVisitor):
    """Walks over the code that decides something; what is only declared, documented, logged or asserted is left out."""

    def __init__(self, path: str, source: bytes) -> None:
        self.path, self.source = path, source
        self.lines = [0]
        for line in source.splitlines(keepends=True):
            self.lines.append(self.lines[-1] + len(line))
        self.found: list[Mutant] = []
        self.rebound: set[str] | None = None  # names that the function around binds more than once; None outside of functions

    # -- positions -------------------------------------------------------------------------------------------------

    def span(self, node: ast.AST) -> tuple[int, int]:
        """The bytes of a node."""
        line, column, last, end = (getattr(node, name) for name in ("lineno", "col_offset", "end_lineno", "end_col_offset"))
        return self.lines[line - 1] + column, self.lines[last - 1] + end

    def add(self, node: ast.AST, kind: str, start: int, stop: int, text: bytes) -> None:
        """Note a mutant."""
        line = self.source.count(b"\n", 0, start) + 1
        self.found.append(Mutant(self.path, line, kind, start, stop, text))

    def between(self, left: ast.AST, right: ast.AST, pattern: re.Pattern[bytes]) -> re.Match[bytes] | None:
        """The operator between two operands."""
        return pattern.search(self.source, self.span(left)[1], self.span(right)[0])

    # -- what is left out ------------------------------------------------------------------------------------------

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        """Defaults and body; no decorators and no annotations."""
        before, self.rebound = self.rebound, _rebound(node)
        for default in (*node.args.defaults, *(each for each in node.args.kw_defaults if each is not None)):
            self.visit(default)
        for statement in node.body:
            self.visit(statement)
        self.rebound = before

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        """The body; no decorators."""
        before, self.rebound = self.rebound, None
        for statement in node.body:
            self.visit(statement)
        self.rebound = before

    def visit_If(self, node: ast.If) -> None:
        """Leave out what only type checkers see, and the lines that start a script."""
        test = ast.unparse(node.test)
        if test == "TYPE_CHECKING" or test.startswith("__name__ =="):
            return
        self.generic_visit(node)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Leave out messages; before Python 3.12 positions inside of them are wrong as well."""

    def visit_Assert(self, node: ast.Assert) -> None:
        """Leave out what is there for readers and type checkers."""

    def visit_Import(self, node: ast.Import) -> None:
        """Leave out imports."""

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        """Leave out imports."""

    # -- statements ------------------------------------------------------------------------------------------------

    def drop(self, node: ast.stmt) -> None:
        """A mutant without the statement."""
        self.add(node, "dropped", *self.span(node), b"pass")

    def visit_Expr(self, node: ast.Expr) -> None:
        """Drop a call, unless it logs; leave out docstrings."""
        if isinstance(node.value, ast.Call) and not _logs(node.value):
            self.drop(node)
        if not isinstance(node.value, ast.Constant):
            self.generic_visit(node)

    def visit_Raise(self, node: ast.Raise) -> None:
        """Drop it; its message is left out."""
        self.drop(node)

    def visit_Break(self, node: ast.Break) -> None:
        """Drop it."""
        self.drop(node)

    def visit_Continue(self, node: ast.Continue) -> None:
        """Drop it."""
        self.drop(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        """Drop it where the program goes on without: attributes, items, and names that are bound elsewhere too."""
        if self.rebound is not None and all(_keeps(target, self.rebound) for target in node.targets):
            self.drop(node)
        self.visit(node.value)
        for target in node.targets:
            self.visit(target)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        """Drop it, or go the other way."""
        self.drop(node)
        if isinstance(node.op, ast.Add | ast.Sub):
            stop = self.span(node.value)[0]
            at = self.source.find(b"+=" if isinstance(node.op, ast.Add) else b"-=", self.span(node.target)[1], stop)
            self.add(node, "+/-", at, at + 2, b"-=" if isinstance(node.op, ast.Add) else b"+=")
        self.visit(node.value)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        """The value alone."""
        if node.value is not None:
            self.visit(node.value)

    def visit_Return(self, node: ast.Return) -> None:
        """Return nothing."""
        if node.value is None or (isinstance(node.value, ast.Constant) and node.value.value is None):
            return
        self.add(node, "return None", *self.span(node.value), b"None")
        self.visit(node.value)

    # -- expressions -----------------------------------------------------------------------------------------------

    def visit_Compare(self, node: ast.Compare) -> None:
        """Another comparison, for each of a chain."""
        for left, right in zip((node.left, *node.comparators), node.comparators, strict=False):
            if match := self.between(left, right, _OPERATOR):
                operator = b" ".join(match[0].split())
                self.add(node, "comparison", match.start(), match.end(), _COMPARED[operator])
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        """Plus for minus and minus for plus."""
        signs = {ast.Add: (rb"\+", b"-"), ast.Sub: (rb"-", b"+")}
        if (kind := type(node.op)) in signs:
            pattern, other = signs[kind]  # type: ignore[index]
            if match := self.between(node.left, node.right, re.compile(pattern)):
                self.add(node, "+/-", match.start(), match.end(), other)
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        """And for or, or for and."""
        word, other = (rb"\band\b", b"or") if isinstance(node.op, ast.And) else (rb"\bor\b", b"and")
        for left, right in zip(node.values, node.values[1:], strict=False):
            if match := self.between(left, right, re.compile(word)):
                self.add(node, "and/or", match.start(), match.end(), other)
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        """Without not; a minus belongs to its number."""
        start, stop = self.span(node)[0], self.span(node.operand)[0]
        if isinstance(node.op, ast.Not) and (match := re.compile(rb"not\s*").search(self.source, start, stop)):
            self.add(node, "not", match.start(), match.end(), b"")
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        """The other extreme; calls that log or declare types are left out."""
        function = node.func
        name = function.attr if isinstance(function, ast.Attribute) else function.id if isinstance(function, ast.Name) else ""
        if _logs(node) or name in ("TypeVar", "cast", "getLogger"):
            return
        if name in _EXTREMES:
            stop = self.span(function)[1]
            self.add(node, "min/max", stop - len(name), stop, _EXTREMES[name])
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        """The opposite of a truth value, and the next number."""
        if isinstance(node.value, bool):
            self.add(node, "True/False", *self.span(node), str(not node.value).encode())
        elif isinstance(node.value, int | float):
            self.add(node, "constant", *self.span(node), repr(node.value + 1).encode())


def _logs(call: ast.Call) -> bool:
    """Whether a call writes a log line or a warning."""
    function = call.func
    return isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name) and function.value.id in _LOGGERS


def _keeps(target: ast.expr, rebound: set[str]) -> bool:
    """Whether the program still has a value for a target whose assignment is dropped."""
    if isinstance(target, ast.Tuple | ast.List):
        return all(_keeps(each, rebound) for each in target.elts)
    return isinstance(target, ast.Attribute | ast.Subscript) or (isinstance(target, ast.Name) and target.id in rebound)


def _rebound(function: ast.FunctionDef) -> set[str]:
    """The names that a function binds more than once, arguments included."""
    arguments = (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)
    counts = Counter([each.arg for each in arguments] + list(_bound(function)))
    return {name for name, count in counts.items() if count > 1}


def _bound(node: ast.AST) -> Iterator[str]:
    for child in ast.walk(node):
        if isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store):
            yield child.id
