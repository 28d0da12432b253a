"""The lines that do the same from elsewhere: copied by the button and run, with the page's answer."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import orjson
import pytest

from tests.support.browser import Opener
from tests.support.dashboard_repository import MARKUP
from tests.support.live_server import Server, serving

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.browser

MAY_COPY = {"permissions": ["clipboard-read", "clipboard-write"]}
ANSWER = """async () => {
  const { current } = await import("/dashboard/state/store.js");
  return current("reading").outputs.map(({ name, data }) => [name, Array.from(data, Number)]);
}"""


def clipboard(page: Page) -> str:
    """What is on the clipboard, as soon as something is."""
    for _ in range(50):
        if text := str(page.evaluate("navigator.clipboard.readText()")):
            return text
        page.wait_for_timeout(100)
    raise AssertionError("expected a text on the clipboard, got none")


def copied(page: Page, name: str) -> str:
    """What the button puts on the clipboard."""
    page.evaluate("navigator.clipboard.writeText('')")
    summary = page.locator("#try summary", has_text=name)
    if summary.locator("..").get_attribute("open") is None:
        summary.click()
    page.get_by_role("button", name=f"Copy {name}").click()
    return clipboard(page)


def run_curl(lines: str, **variables: str) -> Any:
    done = subprocess.run(
        ["bash", "-c", lines], capture_output=True, check=True, timeout=60, env={**os.environ, **variables}
    )
    return orjson.loads(done.stdout)


def run_python(lines: str, **variables: str) -> Any:
    done = subprocess.run(
        [sys.executable, "-I", "-c", lines],
        capture_output=True,
        check=True,
        timeout=60,
        text=True,
        env={**os.environ, **variables},
    )
    return ast.literal_eval(done.stdout)


def shown(page: Page) -> dict[str, float]:
    """Label and probability of the page, to the figures that it shows."""
    label = page.locator("#try .headline .label").inner_text()
    rows = page.locator("#try .classes tbody tr").all()
    shares = {row.locator("th").inner_text(): row.locator("td.number").inner_text() for row in rows}
    assert label in shares
    return {name: float(share.strip("<> %")) for name, share in shares.items()}


def test_the_lines_of_a_picture_answer_as_the_page(dashboard: Opener, served: Server) -> None:
    """Label and probabilities of curl and of Python are those on the page."""
    from playwright.sync_api import expect

    with dashboard(served.url, **MAY_COPY) as page:
        page.get_by_role("button", name="sample: 3").click()
        expect(page.locator("#try .request-time")).to_contain_text("sample: 3")
        curl, python = copied(page, "curl"), copied(page, "Python")
        assert curl.startswith(f"curl -s '{served.url}/v1/models/digits-10/versions/1:predict'")
        assert "…" not in curl + python
        # what is looked at is short
        assert "… 8 values" in page.locator("#try pre").first.inner_text()
        for answer in (run_curl(curl), run_python(python)):
            (prediction,) = answer["predictions"]
            assert prediction["label"] == page.locator("#try .headline .label").inner_text()
            for name, share in shown(page).items():
                assert 100 * prediction["probabilities"][name] == pytest.approx(share, abs=0.11)


def test_another_row_changes_the_lines_alone(dashboard: Opener, served: Server) -> None:
    """They are copied as they are then, seen soon after, and what has the focus keeps it."""
    from playwright.sync_api import expect

    with dashboard(served.url, **MAY_COPY) as page:
        lines = page.locator("#try pre").first
        expect(lines).to_contain_text("curl")
        before = lines.inner_text()
        page.evaluate("navigator.clipboard.writeText('')")
        page.evaluate(
            """() => {
              const button = document.querySelector("#try .copy");
              button.focus();
              document.querySelectorAll("#try .sample")[4].click();
              button.click();
            }"""
        )
        (prediction,) = run_curl(clipboard(page))["predictions"]
        assert prediction["label"] == "4"
        expect(lines).not_to_have_text(before)
        expect(page.locator("#try .copy").first).to_be_focused()


def test_the_lines_of_many_inputs_answer_as_the_page(dashboard: Opener, gallery: Server) -> None:
    """Tensors in, the very tensors of the page out, whole numbers as such."""
    from playwright.sync_api import expect

    with dashboard(gallery.url, path="/#model=bare/1", **MAY_COPY) as page:
        page.get_by_role("button", name="Random row").click()
        expect(page.locator("#try .request-time")).to_contain_text("random row")
        expected = page.evaluate(ANSWER)
        curl, python = copied(page, "curl"), copied(page, "Python")
        assert "/v2/models/bare/versions/1/infer" in curl
        for answer in (run_curl(curl), run_python(python)):
            assert [one["name"] for one in answer["outputs"]] == [name for name, _ in expected]
            for one, (_, data) in zip(answer["outputs"], expected, strict=True):
                assert one["data"] == pytest.approx(data, rel=1e-6)


def test_names_of_strangers_do_not_break_out(dashboard: Opener, gallery: Server) -> None:
    """A name with quotes and brackets stays within the quotes of shell and Python."""
    from playwright.sync_api import expect

    with dashboard(gallery.url, path=f"/#model={quote(MARKUP, safe='')}/1", **MAY_COPY) as page:
        page.get_by_role("button", name="Random row").click()
        expect(page.locator("#try .request-time")).to_contain_text("random row")
        curl, python = copied(page, "curl"), copied(page, "Python")
        assert run_curl(curl)["model"] == run_python(python)["model"] == MARKUP
        assert page.title() != "owned"


def test_the_key_is_never_written(dashboard: Opener, tmp_path: Path) -> None:
    """Lines for a service with keys take it from the environment, and run with it there."""
    secret = "a-key-that-nobody-guesses"
    keys = tmp_path / "keys"
    keys.write_text(secret + "\n")
    with (
        serving("--api-keys-file", keys, "--no-access-log") as server,
        dashboard(server.url, key=secret, **MAY_COPY) as page,
    ):
        curl, python = copied(page, "curl"), copied(page, "Python")
        assert secret not in page.content() + curl + python
        environment = {"TURNPIKE_KEY": secret}
        assert run_curl(curl, **environment)["predictions"][0]["label"] == "0"
        assert run_python(python, **environment)["predictions"][0]["label"] == "0"
        assert "error" in run_curl(curl, TURNPIKE_KEY="another")


def test_lines_are_copied_where_browsers_hold_the_clipboard_back(dashboard: Opener, served: Server) -> None:
    """A page that came without TLS has no clipboard to write to, and copies all the same."""
    with dashboard(served.url, **MAY_COPY) as page:
        page.evaluate("() => { navigator.clipboard.writeText = () => Promise.reject(new Error('no')); }")
        page.get_by_role("button", name="Copy curl").click()
        assert clipboard(page).startswith("curl -s")


# in the place of curl, a program that tells what it was given and reads what it is sent
TELLS = 'curl() { printf "%s\\n" "$@"; cat; }; '
WRITTEN = """async ([name, count]) => {
  const { curlCommand, pythonCode, requestFor, fullLiteral } = await import("/dashboard/try/code_snippets.js");
  const inputs = [
    { name, datatype: "FP32", shape: [-1, count] },
    { name: "flag", datatype: "BOOL", shape: [-1, 1] },
  ];
  const model = { name, version: "1", path: "v2/models/it's/versions/1", inputs, outputs: [] };
  const data = [new Array(count).fill(Math.fround(0.1)), [true]];
  const row = { inputs: inputs.map((input, i) => ({ ...input, shape: [1, input.shape[1]], data: data[i] })) };
  const request = requestFor(model, row);
  return [curlCommand(request, fullLiteral), pythonCode(request, fullLiteral)];
}"""


def test_words_are_quoted_for_shell_and_python(dashboard: Opener, served: Server, tmp_path: Path) -> None:
    """An apostrophe ends no quotes, what a shell would run is not run, and numbers are short."""
    name = "it's $(touch owned) `touch owned` \\ \""
    with dashboard(served.url) as page:
        curl, python = page.evaluate(WRITTEN, [name, 3])
    given = run_lines(TELLS + curl, tmp_path).splitlines()
    assert given[1] == f"{served.url}/v2/models/it's/versions/1/infer"
    tensor = {"name": name, "shape": [1, 3], "datatype": "FP32", "data": [0.1, 0.1, 0.1]}
    flag = {"name": "flag", "shape": [1, 1], "datatype": "BOOL", "data": [True]}
    assert orjson.loads(given[given.index("-d") + 1]) == {"inputs": [tensor, flag]}
    assert [path.name for path in tmp_path.iterdir()] == ["lines"]
    body = python.split("body = ")[1].split("\nrequest")[0]
    assert ast.literal_eval(body) == {"inputs": [tensor, flag]}


def test_a_long_row_is_a_document(dashboard: Opener, served: Server, tmp_path: Path) -> None:
    """What no argument of a command can hold is piped into it."""
    with dashboard(served.url) as page:
        curl, _ = page.evaluate(WRITTEN, ["x", 60_000])
    given = run_lines(TELLS + curl, tmp_path).splitlines()
    assert given[-3:-1] == ["--data-binary", "@-"]
    body = orjson.loads(given[-1])
    assert body["inputs"][0]["data"] == [0.1] * 60_000


def run_lines(lines: str, folder: Path) -> str:
    """What a shell says that reads these lines in this folder."""
    (folder / "lines").write_text(lines)
    done = subprocess.run(
        ["bash", "lines"], capture_output=True, check=True, text=True, cwd=folder, stdin=subprocess.DEVNULL
    )
    return done.stdout
