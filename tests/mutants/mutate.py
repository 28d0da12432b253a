"""Makes small errors in Python code: mutants, each of which a test should notice.

No test should have to notice an error in a text, an annotation or a decorator, so these stay as they are.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

# the replacement of each operator: comparisons change their result for equal values, others are reversed
OPERATORS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.Break: ast.Continue,
    ast.Continue: ast.Break,
}
LEFT_ALONE = {"annotation", "returns", "decorator_list"}
# larger constants are limits and seeds, for which the next number would do as well
MAX_CONSTANT = 100
# characters of a statement to show on both sides of a change
CONTEXT = 40


@dataclass(frozen=True)
class Mutant:
    """One error: the statement before and after, its line, and the whole source with the error in it."""

    line: int
    before: str
    after: str
    source: str

    def __str__(self) -> str:
        """The line, and the change with a few characters around it."""
        same = _common_prefix(self.before, self.after)
        tail = _common_prefix(self.before[:same:-1], self.after[:same:-1])
        start = max(0, same - CONTEXT)
        before, after = (text[start : len(text) - tail + CONTEXT] for text in (self.before, self.after))
        return f"{self.line}: {before}  ->  {after}"


def count_mutants(source: str) -> int:
    """The number of mutants that a module has."""
    return sum(1 for _ in _changes(ast.parse(source)))


def make_mutant(source: str, number: int) -> Mutant:
    """One mutant of a module; numbers follow the order of the code."""
    tree = ast.parse(source)
    change = next(islice(_changes(tree), number, None))
    before = _headline(change.statement)
    if change.index is None:
        setattr(change.parent, change.field, change.replacement)
    else:
        getattr(change.parent, change.field)[change.index] = change.replacement
    after = _headline(change.replacement if change.node is change.statement else change.statement)
    return Mutant(change.statement.lineno, before, after, ast.unparse(ast.fix_missing_locations(tree)))


class Change(NamedTuple):
    """A node, its statement, its place in its parent, and what takes its place."""

    statement: ast.stmt
    parent: ast.AST
    field: str
    index: int | None
    node: ast.AST
    replacement: ast.AST


def _changes(parent: ast.AST, statement: ast.stmt | None = None) -> Iterator[Change]:
    """Every change below a node."""
    for field, value in ast.iter_fields(parent):
        if field in LEFT_ALONE:
            continue
        for index, node in enumerate(value) if isinstance(value, list) else [(None, value)]:
            if not isinstance(node, ast.AST) or isinstance(node, ast.JoinedStr):
                continue
            own = node if isinstance(node, ast.stmt) else statement
            if own is not None:
                for replacement in _replacements(node):
                    yield Change(own, parent, field, index, node, replacement)
            yield from _changes(node, own)


def _replacements(node: ast.AST) -> Iterator[ast.AST]:
    """What may take the place of a node, one at a time."""
    match node:
        case ast.Constant(value=bool(value)):
            yield ast.Constant(not value)
        case ast.Constant(value=int(value) | float(value)) if abs(value) <= MAX_CONSTANT:
            yield ast.Constant(value + 1)
            yield ast.Constant(value - 1)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield operand
        case ast.Return(value=ast.expr() as value) if not isinstance(value, ast.Constant):
            yield ast.Return(ast.Constant(None))
        # a statement that is dropped; an assignment to a name would only fail at the next use of the name
        case ast.Expr(value=ast.Call() | ast.Await()) | ast.AugAssign() | ast.Raise() | ast.Delete():
            yield ast.Pass()
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            yield ast.Pass()
        case ast.Call(args=[ast.expr() as first, ast.expr() as second, *rest]) if not (
            isinstance(first, ast.Starred) or isinstance(second, ast.Starred)
        ):
            swapped = copy.copy(node)
            swapped.args = [second, first, *rest]
            yield swapped
        case _ if type(node) in OPERATORS:
            yield OPERATORS[type(node)]()


def _headline(statement: ast.AST) -> str:
    """The first line of a statement."""
    return ast.unparse(statement).split("\n")[0]


def _common_prefix(a: str, b: str) -> int:
    """The number of characters that two texts begin with alike."""
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
