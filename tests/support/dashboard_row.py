"""Actions in the dashboard's section "Gates of this row"."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from tests.support.browser import DOCUMENT_IDLE
from tests.support.live_server import Server

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page


# publishes a row as the section "Try it" does, and waits for its reading
PUT = """async ([model, title, inputs]) => {
  const { current, publish } = await import("/dashboard/state/store.js");
  const until = async (holds) => {
    for (let n = 0; !holds(); n += 1) {
      if (n > 1000) throw new Error(`expected an answer, got ${JSON.stringify(current("request"))}`);
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  };
  await until(() => current("model")?.name === model);
  const row = { title, inputs };
  publish("row", row);
  await until(() => current("reading")?.row === row);
}"""
CELLS = "(plot) => plot.data[0].z.map((row) => Array.from(row))"


def samples(server: Server, model: str) -> list[Any]:
    return server.get(f"/v2/models/{model}/samples").json()["samples"]


def choose_sample(page: Page, server: Server, model: str, number: int = 0) -> list[Any]:
    """Choose a sample and return its inputs."""
    sample = samples(server, model)[number]
    publish_row(page, model, f"sample {number}", sample["inputs"])
    return sample["inputs"]


def publish_row(page: Page, model: str, title: str, inputs: list[Any]) -> None:
    page.evaluate(PUT, [model, title, inputs])
    page.evaluate(DOCUMENT_IDLE)


def gates(server: Server, model: str, inputs: list[Any]) -> dict[str, np.ndarray[Any, Any]]:
    """T of each gate and the outputs of the layers, from the API."""
    answer = server.post(f"/v2/models/{model}/gates?detail=rows&blocks=true", {"inputs": inputs}).json()
    return {tensor["name"]: np.array(tensor["data"]).reshape(tensor["shape"]) for tensor in answer["tensors"]}


def chart(page: Page, label: str) -> Locator:
    """The chart whose label starts with this text, once it is drawn."""
    plot = page.locator("#row").get_by_role("img", name=re.compile(f"^{label}"))
    plot.locator(".main-svg").first.wait_for()
    return plot


def layer_switch(page: Page, layer: int, state: str) -> Locator:
    group = page.get_by_role("radiogroup", name=f"layer {layer}", exact=True)
    return group.get_by_role("radio", name=state, exact=True)
