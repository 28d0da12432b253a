"""Times a newcomer's first minutes in a fresh clone, with a real browser.

    python -m benchmarks.cost.first_minutes

The first journey is the start of README.md: from `git clone` to a drawn digit with a closed layer. The
second is docs/tutorial/own-table.md: from a `.csv` file to a served model, a scored table and its gates. Both
run the lines of those pages. The times are those of the computer; reading and typing come on top. The time of
`make run` depends on the network and on pip's cache.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.errors import BenchmarkError
from benchmarks.folders import ROOT
from benchmarks.measurement.server_process import EXCLUDED_VARIABLES
from tests.support.dashboard_try import draw, upload, wait_for_prediction
from tests.support.digit_strokes import digit_drawings
from tests.support.live_server import free_port

if TYPE_CHECKING:
    from playwright.sync_api import Page

README, TABLE_TUTORIAL = "README.md", "docs/tutorial/own-table.md"
READY_SECONDS = 30
CLOSED_LAYER = 3


class Journey:
    """The steps of a journey with their times in seconds."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.steps: list[tuple[str, float]] = []

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.steps.append((name, time.perf_counter() - start))

    def table(self) -> str:
        lines = [f"\n{self.title}\n", "| step | seconds |", "| --- | ---: |"]
        total = sum(seconds for _, seconds in self.steps)
        return "\n".join(
            [*lines, *(f"| {name} | {seconds:.1f} |" for name, seconds in [*self.steps, ("total", total)])]
        )


def main() -> None:
    argparse.ArgumentParser(prog="python -m benchmarks.cost.first_minutes", description=__doc__).parse_args()
    with tempfile.TemporaryDirectory(prefix="turnpike-") as folder, open_page() as page:
        clone = Path(folder) / "turnpike"
        print(first_digit(clone, page).table())
        print(own_table(clone, page).table())


def first_digit(clone: Path, page: Page) -> Journey:
    journey = Journey("From `git clone` to a drawn digit with a closed layer")
    with journey.step("`git clone`"):
        shell(clone.parent, f"git clone --quiet {ROOT} {clone}")
    install, serve = lines_of(clone / README, "make run", ".venv/bin/turnpike serve")
    with journey.step(f"`{install}`"):
        shell(clone, install)
    with serving(journey, clone, serve) as url:
        with journey.step("open the page: the first row and its road"):
            page.goto(url)
            page.locator("#try .headline .label").wait_for()
        drawing = next(drawing for drawing in digit_drawings(1) if drawing.label == "7")
        with journey.step("draw a 7"):
            draw(page, drawing)
            wait_for_prediction(page, "drawn")
        if (answer := page.locator("#try .headline .label").inner_text()) != drawing.label:
            raise BenchmarkError(f"expected the answer {drawing.label}, got {answer}")
        with journey.step(f"close layer {CLOSED_LAYER}"):
            page.get_by_role("button", name=f"Close layer {CLOSED_LAYER}", exact=True).click()
            page.locator("#try .note", has_text=f"layer {CLOSED_LAYER} closed").wait_for()
    return journey


def own_table(clone: Path, page: Page) -> Journey:
    journey = Journey("From a `.csv` file to a served model, a scored table and its gates")
    *commands, serve = lines_of(clone / TABLE_TUTORIAL, "python ", "turnpike ")
    for command in commands:
        with journey.step(f"`{command}`"):
            shell(clone, f"source .venv/bin/activate && {command}")
    with serving(journey, clone, f".venv/bin/{serve}") as url:
        with journey.step("open the page: a row and its road"):
            page.goto(url)
            page.locator("#try .headline .label").wait_for()
        with journey.step("score the table in the browser, and see the gates of a row"):
            upload(page, "wine.csv", (clone / "wine.csv").read_bytes(), "Open .csv…")
            page.locator("#try .scored tbody tr").first.wait_for()
            page.locator("#row .plot .main-svg").first.wait_for()
    return journey


def lines_of(page: Path, *beginnings: str) -> list[str]:
    """The commands of a page that begin with one of these words, in order."""
    lines = page.read_text(encoding="utf-8").splitlines()
    return list(
        dict.fromkeys(
            line.strip() for line in lines if line.startswith(tuple(f"    {b}" for b in beginnings))
        )
    )


def shell(folder: Path, line: str) -> None:
    done = subprocess.run(
        ["bash", "-c", line], cwd=folder, env=environment(), capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise BenchmarkError(f"{line}: {done.stdout[-2000:]}{done.stderr[-2000:]}")


def environment() -> dict[str, str]:
    """Our variables without those of our Python environment."""
    return {name: value for name, value in os.environ.items() if not name.startswith(EXCLUDED_VARIABLES)}


@contextmanager
def serving(journey: Journey, clone: Path, line: str) -> Iterator[str]:
    """Run the line of a page that starts a server, on a free port, until it is ready."""
    port = free_port()
    with journey.step(f"`{line}`"):
        process = subprocess.Popen(
            [*line.split(), "--port", str(port)], cwd=clone, env=environment(), stderr=subprocess.DEVNULL
        )
        url = f"http://127.0.0.1:{port}"
        wait_until_ready(url)
    try:
        yield url
    finally:
        process.terminate()
        process.wait()


def wait_until_ready(url: str) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while not is_ready(url):
        if time.monotonic() > deadline:
            raise BenchmarkError(f"expected {url} to be ready within {READY_SECONDS} s")
        time.sleep(0.05)


def is_ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/v2/health/ready"):
            return True
    except OSError:
        return False


@contextmanager
def open_page() -> Iterator[Page]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        yield browser.new_page()
        browser.close()


if __name__ == "__main__":
    main()
