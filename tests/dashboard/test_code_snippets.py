"""Code snippets: copied with the button and executed, they return what the page shows."""

from __future__ import annotations

import ast
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import orjson
import pytest

from tests.support.browser import OpenDashboard
from tests.support.dashboard_repository import MARKUP
from tests.support.dashboard_try import run_curl, run_python
from tests.support.live_server import Server, serving

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.browser

MAY_COPY = {"permissions": ["clipboard-read", "clipboard-write"]}
ANSWER = """async () => {
  const { current } = await import("/dashboard/state/store.js");
  return current("reading").outputs.map(({ name, data }) => [name, Array.from(data, Number)]);
}"""


LESION = """async () => {
  const { current } = await import("/dashboard/state/store.js");
  return current("lesioned") && Array.from(current("lesioned").outputs[0].data, Number);
}"""
MINUS = "\N{MINUS SIGN}"


def clipboard(page: Page) -> str:
    """The text on the clipboard, as soon as there is one."""
    for _ in range(50):
        if text := str(page.evaluate("navigator.clipboard.readText()")):
            return text
        page.wait_for_timeout(100)
    raise AssertionError("expected a text on the clipboard, got none")


def copied(page: Page, name: str) -> str:
    """The text that the button copies."""
    page.evaluate("navigator.clipboard.writeText('')")
    summary = page.locator("#try summary", has_text=name)
    if summary.locator("..").get_attribute("open") is None:
        summary.click()
    page.get_by_role("button", name=f"Copy {name}").click()
    return clipboard(page)


def shown(page: Page) -> dict[str, float]:
    """Probabilities by label, as shown on the page."""
    label = page.locator("#try .headline .label").inner_text()
    rows = page.locator("#try .classes tbody tr").all()
    shares = {row.locator("th").inner_text(): row.locator("td.number").inner_text() for row in rows}
    assert label in shares
    return {name: float(share.strip("<> %")) for name, share in shares.items()}


def test_snippets_for_a_picture_return_the_shown_prediction(
    dashboard: OpenDashboard, bundled_server: Server
) -> None:
    from playwright.sync_api import expect

    with dashboard(bundled_server.url, **MAY_COPY) as page:
        page.get_by_role("button", name="sample: 3").click()
        expect(page.locator("#try .request-time")).to_contain_text("sample: 3")
        curl, python = copied(page, "curl"), copied(page, "Python")
        assert curl.startswith(f"curl -s '{bundled_server.url}/v1/models/digits-10/versions/1:predict'")
        assert "…" not in curl + python
        assert page.locator("#try pre").all_inner_texts() == [curl, python]
        for answer in (run_curl(curl), run_python(python)):
            (prediction,) = answer["predictions"]
            assert prediction["label"] == page.locator("#try .headline .label").inner_text()
            for name, share in shown(page).items():
                assert 100 * prediction["probabilities"][name] == pytest.approx(share, abs=0.11)


def test_snippets_follow_the_row(dashboard: OpenDashboard, bundled_server: Server) -> None:
    """The button copies the code for the latest row even before it is displayed, and the focus stays."""
    from playwright.sync_api import expect

    with dashboard(bundled_server.url, **MAY_COPY) as page:
        code = page.locator("#try pre").first
        expect(code).to_contain_text("curl")
        before = code.inner_text()
        page.evaluate("navigator.clipboard.writeText('')")
        page.evaluate(
            """() => {
              const button = document.querySelector("#try .snippet .copy");
              button.focus();
              document.querySelectorAll("#try .sample")[4].click();
              button.click();
            }"""
        )
        (prediction,) = run_curl(clipboard(page))["predictions"]
        assert prediction["label"] == "4"
        expect(code).not_to_have_text(before)
        expect(page.locator("#try .snippet .copy").first).to_be_focused()


def test_snippets_move_the_levers_that_are_moved(dashboard: OpenDashboard, bundled_server: Server) -> None:
    """The answer to the code is what the page shows, and as trained again after a reset."""
    from playwright.sync_api import expect

    path = "/#model=digits-10/1&row=1x8x8:7*64&title=grey&levers=2:closed,5:-2.5"
    with dashboard(bundled_server.url, path=path, **MAY_COPY) as page:
        heading = page.get_by_role("heading", name="Use from code")
        expect(heading).to_have_text(f"Use from code, with layer 2 closed and layer 5 moved by {MINUS}2.5")
        expect(page.locator("#try .request-time")).to_contain_text("grey")
        page.wait_for_function(LESION)
        expected = page.evaluate(LESION)
        for answer in (run_curl(copied(page, "curl")), run_python(copied(page, "Python"))):
            assert answer["lesioned"]["outputs"][0]["data"] == pytest.approx(expected, rel=1e-6)
        page.get_by_role("button", name="Reset").first.click()
        expect(heading).to_have_text("Use from code")
        assert ":predict" in copied(page, "curl")


@pytest.mark.thorough
def test_snippets_for_several_inputs_return_the_shown_outputs(
    dashboard: OpenDashboard, all_models_server: Server
) -> None:
    from playwright.sync_api import expect

    with dashboard(all_models_server.url, path="/#model=bare/1", **MAY_COPY) as page:
        page.get_by_role("button", name="Random row").click()
        expect(page.locator("#try .request-time")).to_contain_text("random row")
        expected = page.evaluate(ANSWER)
        curl, python = copied(page, "curl"), copied(page, "Python")
        assert "/v2/models/bare/versions/1/infer" in curl
        for answer in (run_curl(curl), run_python(python)):
            assert [output["name"] for output in answer["outputs"]] == [name for name, _ in expected]
            for output, (_, data) in zip(answer["outputs"], expected, strict=True):
                assert output["data"] == pytest.approx(data, rel=1e-6)


def test_model_names_do_not_break_out_of_quotes(dashboard: OpenDashboard, all_models_server: Server) -> None:
    from playwright.sync_api import expect

    with dashboard(all_models_server.url, path=f"/#model={quote(MARKUP, safe='')}/1", **MAY_COPY) as page:
        page.get_by_role("button", name="Random row").click()
        expect(page.locator("#try .request-time")).to_contain_text("random row")
        curl, python = copied(page, "curl"), copied(page, "Python")
        assert run_curl(curl)["model"] == run_python(python)["model"] == MARKUP
        assert page.title() != "owned"


def test_snippets_never_contain_the_key(dashboard: OpenDashboard, tmp_path: Path) -> None:
    """The code reads the key from the environment."""
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
        assert run_curl(curl, **environment)["predictions"][0]["label"] == "2"
        assert run_python(python, **environment)["predictions"][0]["label"] == "2"
        assert "error" in run_curl(curl, TURNPIKE_KEY="another")


def test_snippets_are_copied_without_clipboard_api(dashboard: OpenDashboard, bundled_server: Server) -> None:
    """Pages without TLS have no clipboard API."""
    with dashboard(bundled_server.url, **MAY_COPY) as page:
        page.evaluate("() => { navigator.clipboard.writeText = () => Promise.reject(new Error('no')); }")
        page.get_by_role("button", name="Copy curl").click()
        assert clipboard(page).startswith("curl -s")


# replaces curl by a function that prints its arguments and its input
PRINT_ARGUMENTS = 'curl() { printf "%s\\n" "$@"; cat; }; '
SNIPPETS = """async ([name, count]) => {
  const { curlCommand, pythonCode, requestFor, fullLiteral, shortLiteral } =
    await import("/dashboard/try/code_snippets.js");
  const inputs = [
    { name, datatype: "FP32", shape: [-1, count] },
    { name: "flag", datatype: "BOOL", shape: [-1, 1] },
  ];
  const model = { name, version: "1", path: "v2/models/it's/versions/1", inputs, outputs: [] };
  const data = [new Array(count).fill(Math.fround(0.1)), [true]];
  const row = { inputs: inputs.map((input, i) => ({ ...input, shape: [1, input.shape[1]], data: data[i] })) };
  const request = requestFor(model, row);
  const curl = (literal) => curlCommand(request, literal);
  return [curl(fullLiteral), pythonCode(request, fullLiteral), curl(shortLiteral)];
}"""


def test_names_are_quoted_for_shell_and_python(
    dashboard: OpenDashboard, bundled_server: Server, tmp_path: Path
) -> None:
    """A name cannot end the quotes, nothing in it is executed, and numbers are short."""
    name = "it's $(touch owned) `touch owned` \\ \""
    with dashboard(bundled_server.url) as page:
        curl, python, shown_curl = page.evaluate(SNIPPETS, [name, 3])
    assert shown_curl == curl
    arguments = run_in_shell(PRINT_ARGUMENTS + curl, tmp_path).splitlines()
    assert arguments[1] == f"{bundled_server.url}/v2/models/it's/versions/1/infer"
    tensor = {"name": name, "shape": [1, 3], "datatype": "FP32", "data": [0.1, 0.1, 0.1]}
    flag = {"name": "flag", "shape": [1, 1], "datatype": "BOOL", "data": [True]}
    assert orjson.loads(arguments[arguments.index("-d") + 1]) == {"inputs": [tensor, flag]}
    assert [path.name for path in tmp_path.iterdir()] == ["lines"]
    body = python.split("body = ")[1].split("\nrequest")[0]
    assert ast.literal_eval(body) == {"inputs": [tensor, flag]}


def test_a_long_row_is_passed_on_standard_input(
    dashboard: OpenDashboard, bundled_server: Server, tmp_path: Path
) -> None:
    """It is too long for an argument of a command, and is shown with most of its values left out."""
    with dashboard(bundled_server.url) as page:
        curl, _, shown_curl = page.evaluate(SNIPPETS, ["x", 60_000])
    assert "… 60,000 values" in shown_curl
    assert len(shown_curl) < 500
    arguments = run_in_shell(PRINT_ARGUMENTS + curl, tmp_path).splitlines()
    assert arguments[-3:-1] == ["--data-binary", "@-"]
    body = orjson.loads(arguments[-1])
    assert body["inputs"][0]["data"] == [0.1] * 60_000


def run_in_shell(code: str, folder: Path) -> str:
    """The output of a shell that executes these lines in this folder."""
    (folder / "lines").write_text(code)
    done = subprocess.run(
        ["bash", "lines"], capture_output=True, check=True, text=True, cwd=folder, stdin=subprocess.DEVNULL
    )
    return done.stdout
