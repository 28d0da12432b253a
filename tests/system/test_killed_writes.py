"""Processes that are killed with SIGKILL while they write files: the old file or the new one, never half."""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.child_program import outcomes_of
from tests.support.killed_writes import NETWORK_UNITS, RANDOM_KILLS
from tests.support.live_server import serving
from tests.support.tiny_highway import highway
from tests.support.tiny_repository import put_model, with_manifest
from tests.support.waiting import wait_until
from turnpike.service.repository.deployment import NEW

# the reason for a whole file that is replaced by the next one before it is loaded
CHANGED = "its file changed while it was loaded"


def kill_writers(writer: str, folder: Path, pause: float = 0) -> list[dict[str, Any]]:
    """The outcome of each kill, whose files stay for `pause` seconds; fails if one of them is not whole."""
    return outcomes_of("tests.support.killed_writes", writer, folder, pause)


def expect_old_or_new(outcomes: list[dict[str, Any]]) -> None:
    """Every kill left the old files or the new ones, and a write that was not killed is complete."""
    kinds = Counter((one["point"], one["killed"], *sorted(set(one["found"].values()))) for one in outcomes)
    # the kills hit the write before and after the file was replaced, and between its bytes
    assert kinds["line", True, "old"] > 20
    assert kinds["line", True, "new"] > 5
    assert kinds["byte", True, "old"] == 5
    assert len({tuple(one["drafts"]) for one in outcomes if one["point"] == "byte"}) == 5
    assert sum(one["point"] == "random" for one in outcomes) == RANDOM_KILLS
    assert {kind[2:] for kind in kinds if not kind[1]} == {("new",)}
    assert outcomes[-1]["point"] == "end"


def expect_no_old_drafts(outcomes: list[dict[str, Any]], files: int = 1) -> None:
    """Drafts of killed processes do not pile up, and the last write removed them."""
    assert max(len(one["drafts"]) for one in outcomes) == files
    assert outcomes[-1]["drafts"] == []


def test_killed_reports_are_whole(tmp_path: Path) -> None:
    """Only between the two renames does a kill leave one new file and one old file."""
    outcomes = kill_writers("pair", tmp_path)
    mixed = [one for one in outcomes if len(set(one["found"].values())) > 1]
    assert all(one["found"]["report.json"] == "new" for one in mixed)
    assert sum(one["point"] == "line" for one in mixed) == 2
    expect_old_or_new([one | {"found": {}} if one in mixed else one for one in outcomes])
    expect_no_old_drafts(outcomes, files=2)


@pytest.mark.slow
def test_killed_checkpoints_are_whole(tmp_path: Path) -> None:
    outcomes = kill_writers("checkpoint", tmp_path)
    expect_old_or_new(outcomes)
    expect_no_old_drafts(outcomes)


@pytest.mark.thorough
@pytest.mark.slow
def test_a_server_never_serves_half_of_a_killed_export(tmp_path: Path) -> None:
    """It looks for new files all the time, and each answer is that of the old network or of the new one."""
    networks = [highway(units=NETWORK_UNITS, seed=seed) for seed in (0, 1)]
    row = np.array([[1, -2, 3, 0.5]], np.float32)
    expected = [network.logits(row)[0] for network in networks]
    body = {"inputs": [{"name": "x", "shape": [1, 4], "datatype": "FP32", "data": row[0].tolist()}]}
    put_model(tmp_path, "net", 3, with_manifest(networks[0]))
    answers: Counter[int | str] = Counter()
    problems: list[object] = []
    stopping = threading.Event()

    with serving("--models", tmp_path, "--poll", 0.05, "--no-access-log") as server:

        def ask() -> None:
            while not stopping.is_set():
                reply = server.post("/v2/models/net/infer", body)
                index = server.post("/v2/repository/index").json()
                reasons = [entry["reason"] for entry in index if entry["reason"]]
                problems.extend(
                    reason for reason in reasons if reason != NEW and not reason.endswith(CHANGED)
                )
                if reply.status_code != 200:
                    problems.append(reply.text)
                    continue
                values = reply.json()["outputs"][0]["data"]
                answers.update(
                    number for number, right in enumerate(expected) if np.allclose(values, right, atol=1e-3)
                )
                answers["all"] += 1

        client = threading.Thread(target=ask)
        client.start()
        try:
            outcomes = kill_writers("model", tmp_path, pause=0.1)
            # the last write, which was not killed, is served in the end
            served = answers[1]
            wait_until(lambda: answers[1] > served + 5)
        finally:
            stopping.set()
            client.join(30)
        warnings = [line["message"] for line in server.logged() if line["level"] in ("warning", "error")]
        assert not [text for text in warnings if "expected the file that was scanned" not in text]
    expect_old_or_new(outcomes)
    expect_no_old_drafts(outcomes)
    assert problems == []
    assert min(answers[0], answers[1]) > 5, answers
    assert answers[0] + answers[1] == answers["all"]
