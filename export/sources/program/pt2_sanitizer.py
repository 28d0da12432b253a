"""Checks the JSON of a torch.export program from an untrusted file, before PyTorch reads it.

PyTorch looks operations up by name, and some of them open files; it evaluates sizes as Python, and imports
the modules of enums. Here only operations on tensors, plain arithmetic and built-in containers are allowed.
"""

from __future__ import annotations

import ast
import json
import math
import re
from collections.abc import Callable
from typing import Any

import torch

from turnpike.export.errors import RefusedError

# operations on tensors, as the program names them
ATEN_OPERATION = re.compile(r"torch\.ops\.(aten|prims)\.([A-Za-z_]\w*)\.([A-Za-z_]\w*)\Z")
# operations on sizes, and control flow
PLAIN_OPERATION = re.compile(
    r"_operator\.(eq|ne|le|ge|lt|gt|neg|pos|mul|add|sub|floordiv|mod|pow|truediv|and_|or_|lshift|rshift|getitem)\Z"
    r"|math\.trunc\Z"
    r"|torch\.sym_(not|int|float|ite|max|min|sqrt)\Z"
    r"|torch\.ops\.higher_order\.(cond|while_loop|scan|wrap_with_set_grad_enabled|wrap_with_autocast)\Z"
)
# ATen operations that open files
FILE_OPERATIONS = ("from_file",)
# the containers that arguments and outputs may be in
CONTAINERS = ("builtins.tuple", "builtins.list", "builtins.dict", "collections.OrderedDict")

# characters of a size: networks have short ones, and a reader of any length would compute for ever
MAX_SIZE_CHARACTERS = 2000
SYMBOL = re.compile(r"[a-z]{1,3}\d{1,9}\Z")
# what the expression of a size may contain: symbols, sympy functions, constants, assumptions and operators
SIZE_FUNCTIONS = {
    "Symbol", "Integer", "Rational", "Float", "Add", "Mul", "Pow", "Max", "Min", "Mod", "PythonMod",
    "FloorDiv", "CeilDiv", "CleanDiv", "ModularIndexing", "Where", "CeilToInt", "FloorToInt", "TruncToInt",
    "RoundToInt", "TruncToFloat", "ToFloat", "IntTrueDiv", "FloatTrueDiv", "PowByNatural", "FloatPow",
    "LShift", "RShift", "Identity", "Eq", "Ne", "Equality", "Unequality", "Gt", "Ge", "Lt", "Le",
    "StrictGreaterThan", "GreaterThan", "StrictLessThan", "LessThan", "And", "Or", "Not", "floor", "ceiling",
}  # fmt: skip
SIZE_CONSTANTS = {"oo", "true", "false", "int_oo"}
SYMBOL_ASSUMPTIONS = {"positive", "nonnegative", "nonzero", "integer", "real", "finite"}
ARITHMETIC_NODES = (
    ast.Expression, ast.Name, ast.Load, ast.Constant, ast.Call, ast.keyword, ast.BinOp, ast.UnaryOp,
    ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.USub, ast.UAdd,
    ast.Compare, ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.BitAnd, ast.BitOr, ast.Invert,
)  # fmt: skip

# dictionaries whose keys are names that the author chose: a tensor called `device` is no device
NAMED_BY_AUTHOR = (
    "tensor_values",
    "sym_int_values",
    "sym_float_values",
    "sym_bool_values",
    "range_constraints",
)

# elements of one tensor, more than any model needs
MAX_ELEMENTS = 1 << 31


def sanitize(value: Any) -> Any:
    """The same JSON, for the CPU; a RefusedError if it contains anything that is not on the lists above."""
    if isinstance(value, list):
        return [sanitize(item) for item in value]
    if not isinstance(value, dict):
        return value
    clean = {}
    for key, item in value.items():
        if key in ("target", "as_operator") and isinstance(item, str):
            expect_operation(item)
        elif key == "expr_str":
            expect_arithmetic(item)
        elif key in ("in_spec", "out_spec") and item is not None:
            expect_containers(item)
        elif key == "as_custom_obj" or (key == "custom_obj_values" and item):
            raise RefusedError("it contains a custom object, which only a pickle can hold: use plain tensors")
        elif key == "sizes":
            expect_size(item)
        if key in NAMED_BY_AUTHOR and isinstance(item, dict):
            clean[key] = {name: sanitize(inner) for name, inner in item.items()}
        else:
            clean[key] = _REPLACEMENTS[key](item) if key in _REPLACEMENTS else sanitize(item)
    return clean


def expect_operation(target: Any) -> None:
    """Raise a RefusedError unless the name is that of an operation on tensors, or on sizes."""
    aten = ATEN_OPERATION.match(target)
    if aten is None and not PLAIN_OPERATION.match(target):
        raise RefusedError(f"it calls {target[:80]!r}, which is not an operation of PyTorch on tensors")
    if aten is not None:
        namespace, name, overload = aten.groups()
        try:
            torch._C._dispatch_find_schema_or_throw(
                f"{namespace}::{name}", "" if overload == "default" else overload
            )
        except RuntimeError as error:
            raise RefusedError(
                f"it calls {target[:80]!r}, which PyTorch {torch.__version__} does not have"
            ) from error
        if name in FILE_OPERATIONS:
            raise RefusedError(f"it calls {target!r}, which opens files")


def expect_arithmetic(text: Any) -> None:
    """Raise a RefusedError unless a size is arithmetic on symbols such as s0, as PyTorch evaluates it."""
    if not isinstance(text, str):
        raise RefusedError(f"a size is {str(text)[:80]}, which is not an expression")
    if len(text) > MAX_SIZE_CHARACTERS:
        raise RefusedError(f"a size is {text[:80]!r}, which goes on for {len(text):,} characters")
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise RefusedError(f"a size is {text[:80]!r}, which is not arithmetic") from error
    function_names = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for node in ast.walk(tree):
        if not _is_arithmetic(node, id(node) in function_names):
            raise RefusedError(f"a size is {text[:80]!r}, which is more than arithmetic")


def _is_arithmetic(node: ast.AST, is_function_name: bool) -> bool:
    if isinstance(node, ast.Name):
        return (
            node.id in SIZE_FUNCTIONS
            if is_function_name
            else node.id in SIZE_CONSTANTS or bool(SYMBOL.match(node.id))
        )
    if isinstance(node, ast.Constant):
        value = node.value
        if isinstance(value, str):
            return bool(SYMBOL.match(value)) or _is_decimal(value)
        return isinstance(value, bool | float) or (isinstance(value, int) and abs(value) < 1 << 63)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and "Pow" in node.func.id:
        return _is_small_power(node)
    if isinstance(node, ast.keyword):
        return node.arg in SYMBOL_ASSUMPTIONS or node.arg == "precision"
    return isinstance(node, ARITHMETIC_NODES)


def _is_small_power(node: ast.Call) -> bool:
    """Whether a power has a symbol as its base: powers of numbers can grow beyond any memory."""
    base = node.args[0] if node.args else None
    symbol = isinstance(base, ast.Name) or (
        isinstance(base, ast.Call) and isinstance(base.func, ast.Name) and base.func.id == "Symbol"
    )
    return symbol and len(node.args) == 2


def _is_decimal(text: str) -> bool:
    return re.fullmatch(r"-?\d{1,20}(\.\d{1,40})?(e[+-]?\d{1,3})?", text) is not None


def expect_containers(text: Any) -> None:
    """Raise a RefusedError unless arguments and outputs are tensors in tuples, lists and dictionaries."""

    def visit(spec: Any) -> None:
        if spec["type"] is None:
            return
        if spec["type"] not in CONTAINERS:
            raise RefusedError(
                f"arguments or outputs are in a {str(spec['type'])[:80]}: use tensors, tuples, lists or "
                "dictionaries"
            )
        context = json.loads(spec["context"])
        keys = context if isinstance(context, list) else []
        if context is not None and (context != keys or not all(isinstance(key, str | int) for key in keys)):
            raise RefusedError("the keys of a dictionary of arguments or outputs are not plain names")
        for child in spec["children_spec"]:
            visit(child)

    try:
        visit(json.loads(text)[1])
    except (ValueError, KeyError, IndexError, TypeError, RecursionError) as error:
        raise RefusedError("the structure of its arguments or outputs has an unexpected form") from error


def expect_size(sizes: Any) -> None:
    """Raise a RefusedError if a tensor claims more elements than MAX_ELEMENTS."""
    if not isinstance(sizes, list):
        raise RefusedError(f"the sizes of a tensor are {str(sizes)[:80]}, which is no list")
    known = [size["as_int"] for size in sizes if isinstance(size, dict) and "as_int" in size]
    if any(not isinstance(size, int) or size < 0 for size in known) or math.prod(known) > MAX_ELEMENTS:
        raise RefusedError(f"a tensor of {known} claims more than 2^31 numbers")


def _device(item: Any) -> Any:
    """Tensors that were saved on a GPU are read on the CPU."""
    return {"type": "cpu", "index": None} if isinstance(item, dict) else None


def _metadata(item: Any) -> dict[str, str]:
    """Keep only the line of code that a node came from, for error messages."""
    trace = item.get("stack_trace") if isinstance(item, dict) else None
    return {"stack_trace": trace} if isinstance(trace, str) else {}


# keys whose values are replaced
_REPLACEMENTS: dict[str, Callable[[Any], Any]] = {
    "device": _device,
    "as_device": _device,
    "metadata": _metadata,
    "guards_code": lambda item: [],  # PyTorch would run it as Python
    "treespec_namedtuple_fields": lambda item: {},
}
