"""Writes the settings of MLServer into the folder SCRATCH, and becomes MLServer."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path


def main() -> None:
    scratch = Path(os.environ["SCRATCH"])
    settings = {
        "debug": False,
        "host": "127.0.0.1",
        "http_port": int(os.environ["PORT"]),
        "grpc_port": int(os.environ["GRPC_PORT"]),
        # the model runs in the process that answers: passing requests to workers takes longer than the run
        "parallel_workers": 0,
        "metrics_endpoint": None,
    }
    # without batching, which costs more than it saves
    model = {"name": os.environ["NET"], "implementation": "runtime.Logits"}
    (scratch / "settings.json").write_text(json.dumps(settings))
    (scratch / "model-settings.json").write_text(json.dumps(model))
    shutil.copy(Path(__file__).with_name("runtime.py"), scratch)
    os.chdir(scratch)
    program = Path(sys.executable).with_name("mlserver")
    os.execv(program, [str(program), "start", "."])


if __name__ == "__main__":
    main()
