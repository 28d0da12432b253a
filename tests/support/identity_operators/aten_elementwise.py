"""Cases of elementwise ATen operators."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.support.identity_operators.aten_case import AtenCases, booleans, floats, integers

CASES = AtenCases()
aten = torch.ops.aten

# functions of one argument, and the range in which they run
for function, low, high in (
    (torch.erfc, -2.0, 2.0),
    *((function, -2.0, 2.0) for function in (torch.neg, torch.exp, torch.abs, torch.sign, torch.sgn)),
    *(
        (function, -2.0, 2.0)
        for function in (torch.sigmoid, torch.tanh, torch.square, torch.expm1, torch.erf)
    ),
    *((function, -7.0, 7.0) for function in (torch.sin, torch.cos, torch.floor, torch.ceil, torch.round)),
    *((function, -7.0, 7.0) for function in (torch.trunc, torch.fix, torch.relu, functional.relu6)),
    *((function, -7.0, 7.0) for function in (functional.silu, functional.selu, functional.mish)),
    *((function, -7.0, 7.0) for function in (functional.hardsigmoid, functional.hardswish)),
    *(
        (function, 0.1, 3.0)
        for function in (torch.log, torch.sqrt, torch.rsqrt, torch.reciprocal, torch.log1p)
    ),
    *((function, -0.9, 0.9) for function in (torch.tan, torch.asin, torch.acos, torch.atan, torch.atanh)),
    *((function, -2.0, 2.0) for function in (torch.sinh, torch.cosh, torch.asinh)),
    (torch.acosh, 1.1, 3.0),
):
    CASES.add(function.__name__, function, floats(3, 8, low=low, high=high))
CASES.add("sign and abs of 0", lambda x: (x.sign(), x.abs(), x.relu()), torch.tensor([-1.5, 0.0, -0.0, 2.0]))
CASES.add(
    "atan2",
    torch.atan2,
    torch.tensor([[-2.0], [3.0]]),
    torch.tensor([-1.0, 4.0]),
)
CASES.add("xlogy", torch.xlogy, torch.tensor([[0.0], [2.0]]), torch.tensor([0.5, 3.0]))
CASES.add("round halves", lambda x: x.round(), torch.tensor([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5]))
CASES.add("round decimals", lambda x: x.round(decimals=2), floats(9))
CASES.add("reciprocal of negative", lambda x: 1 / x, floats(9, low=-2, high=-0.5))
CASES.add(
    "isnan and isinf",
    lambda x: (x.isnan(), x.isinf()),
    torch.tensor([1.0, -2.0, torch.nan, torch.inf, -torch.inf]),
)

# operators of two, with broadcasting
BINARY: dict[str, Any] = {
    "mul": torch.mul,
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "max of two": torch.max,
    "min of two": torch.min,
    "add": torch.add,
    "sub": torch.sub,
    "div": torch.div,
    "gt": torch.gt,
    "ge": torch.ge,
    "lt": torch.lt,
    "le": torch.le,
    "eq": torch.eq,
    "ne": torch.ne,
}
for name, binary in BINARY.items():
    CASES.add(name, binary, floats(2, 1, 4, low=0.5), floats(3, 1, low=0.5))
    CASES.add(f"{name}, integers", binary, integers(4, 5, low=1), integers(5, low=1))
for name, logical in {
    "logical_and": torch.logical_and,
    "logical_or": torch.logical_or,
    "logical_xor": torch.logical_xor,
    "bitwise_and": torch.bitwise_and,
    "bitwise_or": torch.bitwise_or,
    "bitwise_xor": torch.bitwise_xor,
}.items():
    CASES.add(name, logical, booleans(4, 5), booleans(5))
    CASES.add(
        f"{name}, known",
        lambda x, run=logical: x * run(torch.arange(4) > 1, torch.tensor([True, False, True, False])),
        floats(2, 4),
    )
    if name.startswith("logical"):
        CASES.add(f"{name}, floats", logical, floats(4, 5).round(), floats(4, 5).round())
        CASES.add(f"{name}, integers", logical, integers(4, 5, high=3), integers(4, 5, high=3))
        CASES.add(
            f"{name}, known integers",
            lambda x, run=logical: x * run(torch.arange(4), torch.tensor([2, 0, 0, 3])),
            floats(2, 4),
        )
    else:
        CASES.add(
            f"{name}, known integers",
            lambda x, run=logical: x * run(torch.arange(4), torch.tensor([2, 5, 3, 1])),
            floats(2, 4),
        )
CASES.add("logical_not", torch.logical_not, booleans(9))
CASES.add("logical_not, floats", torch.logical_not, floats(9).round())
CASES.add("logical_not, integers", torch.logical_not, integers(9, high=3))
CASES.add("logical_not, known integers", lambda x: x * torch.arange(4).logical_not(), floats(4))
CASES.add("bitwise_not", torch.bitwise_not, booleans(9))
CASES.add("bitwise_not, integers", torch.bitwise_not, integers(9, low=-4))
CASES.add("bitwise_not, known integers", lambda x: x * ~torch.arange(4), floats(4))

CASES.add("add alpha", lambda x, y: torch.add(x, y, alpha=2), floats(3, 4), floats(4))
CASES.add("sub alpha", lambda x, y: torch.sub(x, y, alpha=0.5), floats(3, 4), floats(4))
CASES.add("rsub", lambda x: torch.rsub(x, 1), floats(5))
CASES.add("rsub alpha", lambda x, y: torch.rsub(x, y, alpha=3), floats(5), floats(5))
CASES.add("add literal", lambda x: (x + 0.1, 0.1 - x, x * 0.3, x / 0.7, 0.7 / x), floats(5, low=0.5))
CASES.add("integers and floats", lambda x, n: (x + n, n - x, x * n, n / 3, n // 2), floats(5), integers(5))
CASES.add("booleans and floats", lambda x, b: (x + b, x * b, b * 2, b + b), floats(5), booleans(5))
for rounding in ("floor", "trunc"):
    CASES.add(
        f"div {rounding}",
        lambda x, y, mode=rounding: torch.div(x, y, rounding_mode=mode),
        floats(9, low=-9, high=9),
        floats(9, low=1),
    )
    CASES.add(
        f"div {rounding}, integers",
        lambda x, y, mode=rounding: torch.div(x, y, rounding_mode=mode),
        integers(9, low=-9, high=9),
        integers(9, low=-4, high=0),
    )
    CASES.add(
        f"div {rounding}, known",
        lambda x, mode=rounding: x * torch.div(torch.arange(-4, 5), 3, rounding_mode=mode),
        floats(9),
    )
CASES.add("floor_divide", lambda x, y: x // y, floats(9, low=-9, high=9), floats(9, low=1))
CASES.add("floor_divide, integers", lambda x: x // 3, integers(9, low=-9, high=9))
CASES.add("right shift", lambda x: x >> 2, integers(9, low=-9, high=9))
CASES.add("right shift, all bits", lambda x: x >> 70, integers(9, low=-9, high=9))
CASES.add("bitwise_right_shift", lambda x: torch.bitwise_right_shift(x, 1), integers(9, low=-9, high=9))
for name, modulo in {"remainder": torch.remainder, "fmod": torch.fmod}.items():
    CASES.add(name, modulo, floats(9, low=-9, high=9), floats(9, low=1))
    CASES.add(f"{name}, integers", modulo, integers(9, low=-9, high=9), integers(9, low=-4, high=0))
    CASES.add(f"{name}, known", lambda x, run=modulo: x * run(torch.arange(-4, 5), 3), floats(9))
CASES.add(
    "pow", lambda x: (x**2, x**3, x**-1, x**-2, x**0, x**0.5, x**-0.5, x**1.5, 2**x), floats(9, low=0.5)
)
CASES.add("pow of tensors", torch.pow, floats(3, 4, low=0.5), floats(4))
CASES.add("pow, integers", lambda n: (n**2, n**0), integers(5))

CASES.add("where", torch.where, booleans(3, 4), floats(3, 4), floats(4))
CASES.add("where, literals", lambda x: (torch.where(x > 0, 1.0, x), torch.where(x > 0, 1.5, -0.5)), floats(9))
CASES.add("where, known", lambda x: torch.where(torch.arange(4) > 1, x, -x), floats(3, 4))
CASES.add("where, integers", lambda b, n: torch.where(b, n, 7), booleans(5), integers(5))
CASES.add(
    "masked_fill", lambda x, b: (x.masked_fill(b, -1.5), x.masked_fill(~b, 0)), floats(3, 4), booleans(4)
)
CASES.add("masked_fill, known", lambda x: x.masked_fill(torch.eye(4) > 0, 2.5), floats(4, 4))
CASES.add(
    "lerp", lambda x, y, w: (torch.lerp(x, y, w), torch.lerp(x, y, 0.25)), *(floats(5) for _ in range(3))
)
CASES.add(
    "addcmul",
    lambda x, y, z: (torch.addcmul(x, y, z), torch.addcmul(x, y, z, value=0.5)),
    *(floats(5, low=1) for _ in range(3)),
)
CASES.add(
    "addcdiv",
    lambda x, y, z: (torch.addcdiv(x, y, z), torch.addcdiv(x, y, z, value=0.5)),
    *(floats(5, low=1) for _ in range(3)),
)

# activations with parameters
CASES.add("leaky_relu", lambda x: (functional.leaky_relu(x), functional.leaky_relu(x, 0.25)), floats(3, 4))
for rank in (2, 3, 4):
    CASES.add(f"prelu, {rank} axes", nn.PReLU(3, 0.125), floats(*(2, 3, 4, 5)[:rank]))
slopes = nn.PReLU(3)
with torch.no_grad():
    slopes.weight.copy_(torch.tensor([0.5, -0.25, 2.0]))
CASES.add("prelu, slopes", slopes, floats(2, 3, 4))
CASES.add("prelu, one slope", nn.PReLU(), floats(2, 3, 4))
CASES.add("prelu of a vector", nn.PReLU(), floats(5))
CASES.add("_prelu_kernel", lambda x: aten._prelu_kernel(x, torch.full((1, 3, 1), 0.5)), floats(2, 3, 4))
CASES.add("elu", lambda x: (functional.elu(x), functional.elu(x, 0.5)), floats(3, 4))
CASES.add("elu, all scales", lambda x: aten.elu(x, 0.5, 2.0, 3.0), floats(3, 4))
CASES.add("celu", lambda x: (functional.celu(x), functional.celu(x, 0.5)), floats(3, 4))
CASES.add("logsigmoid", functional.logsigmoid, floats(3, 4))
CASES.add("log_sigmoid_forward", lambda x: aten.log_sigmoid_forward(x)[0], floats(3, 4))
CASES.add("softplus", functional.softplus, floats(3, 4))
CASES.add("softplus, beta and threshold", lambda x: functional.softplus(x, 2.0, 1.5), floats(3, 8))
CASES.add("gelu", lambda x: (functional.gelu(x), functional.gelu(x, approximate="tanh")), floats(3, 4))
CASES.add("hardtanh", lambda x: (functional.hardtanh(x), functional.hardtanh(x, -0.5, 0.25)), floats(3, 4))
CASES.add(
    "clamp",
    lambda x: (x.clamp(-0.5, 0.25), x.clamp(min=0.5), x.clamp(max=-0.5), x.clamp(0.5, -0.5)),
    floats(3, 8),
)
CASES.add(
    "clamp by tensors", lambda x, y, z: x.clamp(y, z), floats(3, 8), floats(8, high=0), floats(8, low=0)
)
CASES.add("clamp_min", lambda x: (x.clamp_min(0.5), torch.clamp_max(x, 0.5)), floats(3, 8))
CASES.add("clamp, integers", lambda n: n.clamp(1, 3), integers(9))
CASES.add("glu", lambda x: (functional.glu(x), functional.glu(x, 0), functional.glu(x, -2)), floats(4, 6, 2))
CASES.add("tanhshrink", lambda x: (functional.tanhshrink(x), functional.softsign(x)), floats(5))

# casts
CASES.add(
    "casts of floats",
    lambda x: (x.to(torch.int64), x.int(), x.bool(), x.half(), x.double(), (x > 0).float(), (x > 0).long()),
    (floats(3, 8) * 8).round() / 4,
)
CASES.add("casts of integers", lambda n: (n.float(), n.bool(), n.int(), n.float().long()), integers(9))
CASES.add(
    "casts of booleans", lambda b: (b.float(), b.long(), b.float().bool(), b.long().bool()), booleans(9)
)
CASES.add(
    "casts of known",
    lambda x: (x * torch.arange(4).bool(), x * torch.tensor([1.7, -1.7]).int()[0]),
    floats(4),
)
CASES.add("type_as", lambda x, n: (n.type_as(x), x.type_as(n)), floats(5), integers(5))
CASES.add("_to_copy", lambda x: aten._to_copy(x, dtype=torch.int64), floats(5))
CASES.add("convert_element_type", lambda x: torch.ops.prims.convert_element_type(x, torch.int64), floats(5))
CASES.add("one_hot", lambda n: functional.one_hot(n, 6), integers(3, 4))
CASES.add(
    "sums of booleans", lambda b: (b.sum(), b.sum(-1), b.cumsum(-1), b.cumsum(-1).bool()), booleans(3, 5)
)


def _composite(x: Tensor) -> Any:
    return functional.tanhshrink(x), functional.softshrink(x, 0.25), functional.hardshrink(x, 0.25), x.frac()


CASES.add("operators without a table", _composite, floats(3, 8))
CASES.add("literals of double tensors", lambda x: (x.double() + 0.1) * 1e-9 * 1e9, floats(5))

# operators that torch.onnx writes with others
for function, low, high in (
    (torch.log2, 0.1, 3.0),
    (torch.log10, 0.1, 3.0),
    (torch.logit, 0.1, 0.9),
    (torch.exp2, -2.0, 2.0),
    (torch.sinc, -2.0, 2.0),
    (torch.frac, -7.0, 7.0),
):
    CASES.add(function.__name__, function, floats(3, 8, low=low, high=high))
CASES.add("logaddexp", torch.logaddexp, floats(4), floats(3, 4))
CASES.add("infinities of one sign", lambda x: (x.isposinf(), x.isneginf()), torch.tensor([1.0, -2.0, 0.0]))
CASES.add("isfinite", torch.isfinite, torch.tensor([1.0, float("inf"), float("nan"), -float("inf"), 0]))
CASES.add("heaviside", torch.heaviside, torch.tensor([[0.0, -1.5, 2], [1, 0, 0]]), floats(3))
