"""Commands on a disk that is full or read-only: a clear error, and every old file stays as it was."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.child_program import outcomes_of
from tests.support.small_disk import UNSHARE, available

# its model has 3 MB
FACTORY = """
import torch
from torch import nn

class Highway(nn.Module):
    def __init__(self):
        super().__init__()
        self.h = nn.Linear(600, 600)
        self.t = nn.Linear(600, 600)
    def forward(self, x):
        t = torch.sigmoid(self.t(x))
        return t * torch.relu(self.h(x)) + (1 - t) * x

def make():
    torch.manual_seed(0)
    return nn.Sequential(Highway(), nn.Linear(600, 3))
"""


@pytest.mark.slow
def test_a_full_or_read_only_disk_keeps_the_old_files(tmp_path: Path) -> None:
    """Each error names the file and the reason, and the same commands work once the disk has space."""
    if not available():
        pytest.skip("NOT TESTED: this system does not let us mount a disk in a namespace (unshare --mount)")
    (tmp_path / "net.py").write_text(FACTORY)
    disk = tmp_path / "disk"
    disk.mkdir()
    program = outcomes_of("tests.support.small_disk", disk, f"{tmp_path}/net.py:make", before=UNSHARE)
    outcomes = {outcome["case"]: outcome for outcome in program}
    full, model = "cannot be written (No space left on device)", disk / "repository/net/1/model.onnx"
    report, writable = disk / "report", "expected a folder that can be written, got"
    for case, status, message in (
        ("full: export", 1, f"error: {model}: {full}"),
        ("full: next version", 1, f"error: {disk}/repository/net/2/model.onnx: {full}"),
        (
            "full: report",
            1,
            f"error: {report}/report.json, {report}/index.html: {full}; "
            f"the model itself is complete: {tmp_path}/elsewhere/net/1/model.onnx",
        ),
        ("full: resume", 1, f"error: {disk}/run/model.safetensors: {full}"),
        ("full: train", 1, f"error: {disk}/other/model.safetensors: {full}"),
        (
            "full: load test",
            None,
            f"LoadTestError: {report}: the report could not be written (No space left on device)",
        ),
        (
            "read-only: export",
            2,
            f"error: --to: {writable} {disk}/repository: no file can be made in {disk}/repository (Read-only",
        ),
        ("read-only: report", 2, f"error: --report: {writable} {report}: no file can be made in "),
        ("read-only: train", 2, f"error: --out: {writable} {disk}/other: no file can be made in "),
        (
            "read-only: load test",
            None,
            f"LoadTestError: {report}: the report could not be written (Read-only file system)",
        ),
    ):
        assert outcomes[case]["status"] == status, outcomes[case]
        assert outcomes[case]["stderr"].startswith(message), outcomes[case]
        # no file is changed or left; an empty folder is harmless
        assert [name for name in outcomes[case]["changed"] if name not in ("other", "report")] == [], case
    for case in ("export", "train", "export again", "train again", "resume again"):
        assert outcomes[case]["status"] == 0, outcomes[case]
        assert outcomes[case]["changed"], case
