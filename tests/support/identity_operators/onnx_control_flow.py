"""Cases of If, Loop and Scan."""

from __future__ import annotations

import numpy as np

from tests.support.identity_operators.onnx_case import OnnxCases, floats

CASES = OnnxCases()
IF = """
case (float[N] x) => (float[N] y, float[N] z) {{
    total = ReduceSum <keepdims = {keepdims}> (x)
    zero = Constant <value_float = 0.0> ()
    positive = Greater (total, zero)
    y, z = If (positive) <
        then_branch = yes () => (float[N] a, float[N] b) {{ a = Neg (x)  b = Identity (x) }},
        else_branch = no () => (float[N] c, float[N] d) {{ c = Exp (x)  d = Mul (x, x) }}
    >
}}
"""
CASES.text("If, true", IF.format(keepdims=0), x=floats(4, low=0))
CASES.text("If, false", IF.format(keepdims=0), x=floats(4, high=0))
CASES.text("If, a condition with an axis", IF.format(keepdims=1), x=floats(4, low=0))
KNOWN_IF = """
case (float[N] x) => (float[N] y) {{
    condition = Constant <value = bool {{{condition}}}> ()
    y = If (condition) <
        then_branch = yes () => (float[N] a) {{ a = Neg (x) }},
        else_branch = no () => (float[N] b) {{ b = Exp (x) }}
    >
}}
"""
CASES.text("If, known", KNOWN_IF.format(condition=1), x=floats(4))
CASES.text("If, known not", KNOWN_IF.format(condition=0), x=floats(4))
CASES.text(
    "If of shapes",
    """
    case (float[N] x) => (float[N] y) {
        size = Shape (x)
        four = Constant <value_ints = [4]> ()
        condition = Equal (size, four)
        y = If (condition) <
            then_branch = yes () => (float[N] a) { a = Neg (x) },
            else_branch = no () => (float[N] b) { b = Exp (x) }
        >
    }
    """,
    x=floats(4),
)

LOOP = """
case (float[3, 2] x)
=> (float[2] last, float[N, 2] steps, int64[M] numbers) {{
    count = Constant <value_int = {count}> ()
    going = Constant <value = bool {{{going}}}> ()
    limit = Constant <value_int = {limit}> ()
    start = Constant <value_floats = [0.0, 0.0]> ()
    last, steps, numbers = Loop ({inputs}, start) <
        body = body (int64 step, bool before, float[2] state)
        => (bool more, float[2] new, float[2] out, int64 n) {{
            row = Gather (x, step)
            sum = Add (state, row)
            new = Tanh (sum)
            out = Identity (sum)
            n = Identity (step)
            more = Less (step, limit)
        }}
    >
}}
"""
for name, inputs, options in (
    ("Loop, all steps", "count, going", {"count": 3, "going": 1, "limit": 9}),
    ("Loop, stopped by its body", "count, going", {"count": 3, "going": 1, "limit": 1}),
    ("Loop without a condition", "count, ", {"count": 2, "going": 1, "limit": 9}),
    ("Loop without a count", ", going", {"count": 2, "going": 1, "limit": 2}),
):
    CASES.text(name, LOOP.format(inputs=inputs, **options), x=floats(3, 2))
CASES.text(
    "Loop without steps",
    """
    case (float[2] x) => (float[2] y) {
        count = Constant <value_int = 3> ()
        going = Constant <value = bool {0}> ()
        y = Loop (count, going, x) <
            body = body (int64 step, bool before, float[2] state) => (bool more, float[2] new) {
                new = Neg (state)
                more = Identity (before)
            }
        >
    }
    """,
    x=floats(2),
)

SCAN = """
case (float[2] start, float[{x}] x, float[{y}] y)
=> (float[2] last, float[A, B] sums, float[C, D] products) {{
    last, sums, products = Scan <
        num_scan_inputs = 2, {options}
        body = body (float[2] state, float[2] a, float[2] b) => (float[2] new, float[2] s, float[2] p) {{
            t = Add (state, a)
            new = Tanh (t)
            s = Sub (new, b)
            p = Mul (a, b)
        }}
    > (start, x, y)
}}
"""
for name, directions, shapes in (
    ("Scan", "", ("3, 2", "3, 2")),
    ("Scan backwards", "scan_input_directions = [1, 0],", ("3, 2", "3, 2")),
    ("Scan to reversed outputs", "scan_output_directions = [0, 1],", ("3, 2", "3, 2")),
    ("Scan along other axes", "scan_input_axes = [1, 0],", ("2, 3", "3, 2")),
    ("Scan along the last axis", "scan_input_axes = [1, -1],", ("2, 3", "2, 3")),
    ("Scan to other axes", "scan_output_axes = [1, -1],", ("3, 2", "3, 2")),
):
    x_shape, y_shape = (tuple(map(int, shape.split(","))) for shape in shapes)
    text = SCAN.format(options=directions, x=shapes[0], y=shapes[1])
    CASES.text(name, text, start=np.array([0.5, -1], np.float32), x=floats(*x_shape), y=floats(*y_shape))
