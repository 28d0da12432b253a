"""Values of section "Gates of this row": tensors, units and classes."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.browser import OpenDashboard
from tests.support.live_server import Server

pytestmark = pytest.mark.browser


def test_binary_tensors_are_read_in_order(dashboard: OpenDashboard, bundled_server: Server) -> None:
    """Outputs, lesioned outputs and tensors follow each other, also in half precision and as integers."""
    with dashboard(bundled_server.url) as page:
        read = page.evaluate("""async () => {
          const { parseTensors } = await import("/dashboard/state/tensors.js");
          const tensor = (name, datatype, size) =>
            ({ name, datatype, shape: [size], parameters: { binary_data_size: size } });
          const head = new TextEncoder().encode(JSON.stringify({
            outputs: [tensor("o", "BOOL", 1), { name: "j", datatype: "FP32", shape: [2], data: [[1, 2]] }],
            gates: [{ name: "not a tensor" }],
            lesioned: { outputs: [tensor("l", "INT64", 8)] },
            tensors: [tensor("t", "FP16", 4), tensor("u", "FP32", 4)],
          }));
          const tail = new DataView(new ArrayBuffer(17));
          tail.setUint8(0, 1);
          tail.setBigInt64(1, -5n, true);
          tail.setUint16(9, 0xc500, true);
          tail.setUint16(11, 0x0001, true);
          tail.setFloat32(13, 0.25, true);
          const whole = new Uint8Array(head.length + 17);
          whole.set(head);
          whole.set(new Uint8Array(tail.buffer), head.length);
          const answer = parseTensors(whole.buffer, String(head.length));
          const all = [...answer.outputs, ...answer.lesioned.outputs, ...answer.tensors];
          return all.map(({ data }) => Array.from(data, Number));
        }""")
        assert read == [[1], [1, 2], [-5], [-5, 2**-24], [0.25]]


def test_values_are_grouped_by_unit_and_pixel(dashboard: OpenDashboard, bundled_server: Server) -> None:
    """The unit axis may have steps before it and pixels after it."""
    with dashboard(bundled_server.url) as page:
        array = np.arange(2 * 3 * 2 * 2, dtype=np.float32).reshape(2, 3, 2, 2)
        units, places, one_unit, mean = page.evaluate(
            """async (data) => {
              const { unitsByPlace, meansByUnit, gateLayout, unitPicture } =
                await import("/dashboard/row/gate_values.js");
              const layout = gateLayout({ shape: [2, 3, 2, 2], data }, -3);
              const lists = (all) => all.map((list) => Array.from(list));
              const pictures = [unitPicture(layout, 1), unitPicture(layout, null)].map(lists);
              return [[...meansByUnit(layout)], lists(unitsByPlace(layout)), ...pictures];
            }""",
            array.ravel().tolist(),
        )
        assert units == array.mean((0, 2, 3)).tolist()
        assert places == np.moveaxis(array, 1, -1).reshape(-1, 3).tolist()
        assert one_unit == array[:, 1].mean(0).tolist()
        assert mean == array.mean((0, 1)).tolist()


def test_the_predicted_class_has_its_probability(dashboard: OpenDashboard, bundled_server: Server) -> None:
    """Logits become probabilities without overflow."""
    with dashboard(bundled_server.url) as page:
        texts = page.evaluate("""async () => {
          const { answerText } = await import("/dashboard/row/predicted_class.js");
          const output = (...data) => [{ shape: [1, data.length], data: Float32Array.from(data) }];
          const labels = ["a", "b"];
          return [
            answerText({ distribution: "logits", labels }, output(1000, 1000 + Math.log(3))),
            answerText({ distribution: "probabilities", labels: [] }, output(0.125, 0.25, 0.625)),
            answerText({ distribution: "logits", labels }, output(8, 0)),
            answerText({ distribution: null, labels }, output(1, 2)),
            answerText({ distribution: null, labels: [], task: "number", target: "price" }, output(12.5)),
          ];
        }""")
        assert texts == ["b (75.0 %)", "class 2 (62.5 %)", "a (> 99.9 %)", None, "price: 12.5"]
