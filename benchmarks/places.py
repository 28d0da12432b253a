"""Where a benchmark keeps what it makes: in `.bench`, which git ignores, but for what was measured."""

from __future__ import annotations

from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent
RESULTS = HERE / "results"
DOCS = ROOT / "docs"

KEPT = ROOT / ".bench"
ENVIRONMENTS = KEPT / "environments"
NETS = KEPT / "nets"
LOGS = KEPT / "logs"
