"""Kills a process that writes files, once at every point of the write, and says what it leaves behind.

    python -m tests.support.killed_writes WRITER FOLDER [SECONDS]

forks processes that replace files of an old generation with those of a new one, and kills them

- at each line of Python code that the write executes,
- after each fifth of its bytes, by a limit of the kernel on the size of a file,
- at random moments, by a signal of another process.

It prints one JSON object per killed process, after one for a write that was not killed and before another.
The files that each leaves behind stay for SECONDS (0 by default), so that a server has the time to load them.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import resource
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

OLD, NEW = "old", "new"
RANDOM_KILLS = 30
# makes a file of about 1 MB
NETWORK_UNITS = 200
# a child that neither ends nor is killed must not stop the tests
MAX_SECONDS = 100
# files whose lines are points to kill at
TRACED = (
    "common/durable_files.py",
    "models/training/checkpoint.py",
    "export/output/repository.py",
)

# writes a generation into a folder
Write = Callable[[Path, str], Any]
# the generation of each file in a folder; raises an error unless all files are whole
Read = Callable[[Path], dict[str, str]]


def model_writer() -> tuple[Write, Read]:
    """An export's model, read as the service reads it."""
    from tests.support.manifests import MANIFEST
    from tests.support.tiny_highway import highway
    from turnpike.export.output.repository import write_model
    from turnpike.service.artifact.onnx_file.protobuf import content_digest
    from turnpike.service.artifact.runtime import open_model
    from turnpike.service.repository.scan import read_model_file, scan

    networks = {OLD: highway(units=NETWORK_UNITS), NEW: highway(units=NETWORK_UNITS, seed=1)}
    fields = {"outputs": ("logits",), "labels": ("a", "b", "c"), "gates": networks[OLD].gates}
    manifest = MANIFEST.model_copy(update=fields)
    digests = {content_digest(network.model): name for name, network in networks.items()}

    def write(folder: Path, generation: str) -> None:
        write_model(folder, manifest, networks[generation].model, if_taken="replace")

    def read(folder: Path) -> dict[str, str]:
        found = scan(folder)
        ((file,),) = found.models.values()
        assert found.skipped == ()
        data = bytes(read_model_file(file))
        open_model(data)
        return {"model": digests[content_digest(data)]}

    return write, read


def checkpoint_writer() -> tuple[Write, Read]:
    """A training's checkpoint."""
    import torch

    from turnpike.models.training.checkpoint import TrainingRecord, read_checkpoint, save_checkpoint

    torch.set_num_threads(1)  # threads do not survive a fork
    tensors = {OLD: torch.zeros(100_000), NEW: torch.ones(100_000)}

    def write(folder: Path, generation: str) -> None:
        record = TrainingRecord(generation, {}, {}, {}, 0, {}, [], torch.__version__)
        save_checkpoint(folder / "last.safetensors", {"weight": tensors[generation]}, record)

    def read(folder: Path) -> dict[str, str]:
        found, record = read_checkpoint(folder / "last.safetensors")
        assert torch.equal(found["weight"], tensors[record.preset])
        return {"checkpoint": record.preset}

    return write, read


def pair_writer() -> tuple[Write, Read]:
    """Two files that belong together, written as the reports of export, loadtest and tune are."""
    from turnpike.common.durable_files import write_texts

    names = ("report.json", "index.html")

    def write(folder: Path, generation: str) -> None:
        write_texts(dict.fromkeys((folder / name for name in names), generation * 50_000))

    def read(folder: Path) -> dict[str, str]:
        texts = {name: (folder / name).read_text() for name in names}
        assert set(texts.values()) <= {OLD * 50_000, NEW * 50_000}
        return {name: text[:3] for name, text in texts.items()}

    return write, read


WRITERS = {
    "model": model_writer,
    "checkpoint": checkpoint_writer,
    "pair": pair_writer,
}


def kill_at_line(number: int) -> None:
    """Let this process be killed when it has executed this many lines of the traced files."""
    lines = itertools.count(1)

    def trace_lines(frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line" and next(lines) == number:
            os.kill(os.getpid(), signal.SIGKILL)
        return trace_lines

    def trace_calls(frame: FrameType, event: str, argument: Any) -> Any:
        return trace_lines if frame.f_code.co_filename.endswith(TRACED) else None

    sys.settrace(trace_calls)


def kill_after_bytes(count: int) -> None:
    """Let the kernel kill this process when a file has this many bytes and gets more."""
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (count, count))


def write_in_child(write: Write, folder: Path, arm: Callable[[], None], kill_after: float | None) -> bool:
    """Write the new generation in a forked process; returns whether it was killed."""
    child = os.fork()
    if child == 0:
        arm()
        write(folder, NEW)
        os._exit(0)
    if kill_after is not None:
        time.sleep(kill_after)
        os.kill(child, signal.SIGKILL)
    status = os.waitpid(child, 0)[1]
    assert os.WIFSIGNALED(status) or os.waitstatus_to_exitcode(status) == 0
    return os.WIFSIGNALED(status)


def kill_everywhere(write: Write, read: Read, folder: Path, pause: float) -> Iterator[dict[str, Any]]:
    """The outcome of each kill: its point, the generation of each file, and the sizes of the drafts left."""

    def nothing() -> None:
        pass

    def outcome(
        point: str, arm: Callable[[], None] = nothing, kill_after: float | None = None
    ) -> dict[str, Any]:
        write(folder, OLD)
        started = time.perf_counter()
        killed = write_in_child(write, folder, arm, kill_after)
        seconds = time.perf_counter() - started
        time.sleep(pause)
        sizes = sorted(path.stat().st_size for path in folder.rglob(".*") if path.is_file())
        return {
            "point": point,
            "killed": killed,
            "seconds": seconds,
            "found": read(folder),
            "drafts": sizes,
        }

    write(folder, OLD)
    size = max(path.stat().st_size for path in folder.rglob("*"))
    whole = outcome("none")
    yield whole
    for number in itertools.count(1):
        result = outcome("line", lambda number=number: kill_at_line(number))  # type: ignore[misc]
        if not result["killed"]:
            break
        yield result
    for fifth in range(5):
        yield outcome("byte", lambda fifth=fifth: kill_after_bytes(size * fifth // 5))  # type: ignore[misc]
    for _ in range(RANDOM_KILLS):
        yield outcome("random", kill_after=random.uniform(0, whole["seconds"]))
    yield outcome("end")


def main() -> None:
    signal.alarm(MAX_SECONDS)
    write, read = WRITERS[sys.argv[1]]()
    pause = float(sys.argv[3]) if len(sys.argv) > 3 else 0
    for result in kill_everywhere(write, read, Path(sys.argv[2]), pause):
        print(json.dumps(result), flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
