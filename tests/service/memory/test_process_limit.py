"""Limits on the memory of a process, tried in processes of their own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

IMPORTS = """
from turnpike.service.memory.process_limit import *
from turnpike.service.memory.thread_stacks import status_bytes
MIB = 1 << 20
"""
MIB = 1 << 20


def run_python(script: str) -> str:
    """The output of a Python program."""
    script = f"{IMPORTS}\n{script}"
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=30
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


@pytest.mark.parametrize(("share", "allocated"), [(300, 200), (None, 400)])
def test_an_allocation_within_the_share_succeeds(share: int | None, allocated: int) -> None:
    """Without a share there is no limit."""
    limit = None if share is None else share * MIB
    assert run_python(f"limit_memory({limit})\nprint(len(bytes({allocated} * MIB)))") == str(allocated * MIB)


@pytest.mark.parametrize(("share", "allocated"), [(300, 300), (1, 100)])
def test_an_allocation_beyond_the_share_fails(share: int, allocated: int) -> None:
    """What the process used before counts. The process goes on; a tiny share leaves it some room."""
    script = f"limit_memory({share} * MIB)\ntry:\n bytes({allocated} * MIB)\nexcept MemoryError: print('no')"
    assert run_python(script + "\nprint(len(bytes(50 * MIB)))").split() == ["no", str(50 * MIB)]


def test_freed_memory_can_be_used_again() -> None:
    """A large block goes back to the system. The process may need several of them, one after the other."""
    script = "limit_memory(300 * MIB)\nfor _ in range(20): bytes(200 * MIB)\nprint(status_bytes('RssAnon'))"
    assert int(run_python(script)) < 100 * MIB


OPEN = """
from turnpike.service.artifact.runtime import PRODUCT_MODEL, open_model
from turnpike.service.errors import ModelFileError
"""


def test_models_with_many_threads_fit_in_a_small_room() -> None:
    """Their stacks do not count. They are not left in the limit for other memory after the models."""
    script = f"""{OPEN}
limit_memory(1)
for _ in range(3):
    models = [open_model(PRODUCT_MODEL, threads=32) for _ in range(4)]
    del models
open_model(PRODUCT_MODEL, threads=2)
try: bytes(150 * MIB)
except MemoryError: print('no')
"""
    assert run_python(script) == "no"


def test_a_model_whose_threads_find_no_room_is_refused() -> None:
    """The limit of someone else is kept. onnxruntime would wait for the missing threads for ever."""
    script = f"""{OPEN}
limit = status_bytes('VmData') + 64 * MIB
resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
try: open_model(PRODUCT_MODEL, threads=32)
except ModelFileError as error: print(error)
"""
    assert "no memory for the stacks of 32 threads" in run_python(script)


def test_the_kernel_prefers_a_worker() -> None:
    """Its score is higher than that of its parent, and never too high for the kernel."""
    own = int(Path("/proc/self/oom_score_adj").read_text())
    script = "offer_to_oom_killer()\n" * 9 + "print(OOM_SCORE.read_text())"
    assert int(run_python(script)) == 1000
    assert int(run_python("offer_to_oom_killer()\nprint(OOM_SCORE.read_text())")) == own + 200
