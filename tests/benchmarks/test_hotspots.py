"""Where time goes, read from py-spy's stacks."""

from __future__ import annotations

from benchmarks.hotspots import hotspots, self_time

LOOP = "0x7f (libc.so.6);run (asyncio/runners.py:190)"


def test_work_is_told_by_who_does_it() -> None:
    """Calls of the system and native libraries by themselves, the interpreter's work as its function's."""
    stacks = [
        f"{LOOP};submit (service/batcher.py:9);Py_DECREF (libpython3.11.so.1.0) 5",
        f"{LOOP};submit (service/batcher.py:31) 3",
        f"{LOOP};run (service/stack.py:7);0x7f (onnxruntime/capi/state.cpython-311.so);0x7e (libc.so.6) 4",
        f"{LOOP};uv__write (stream.c:3);write (libc.so.6) 2",
    ]
    assert self_time(stacks) == {
        "submit (service/batcher.py)": 8,
        "onnxruntime (native code)": 4,
        "write (system)": 2,
    }


def test_waiting_is_no_work() -> None:
    """Neither the event loop's for requests nor that of a thread without a task."""
    stacks = [
        f"{LOOP};uv__io_poll (linux.c:3);epoll_pwait (libc.so.6) 50",
        "_worker (concurrent/futures/thread.py:81);get (_queuemodule.c:2);0x7e (libc.so.6) 70",
        f"{LOOP};done (service/door.py:1) 1",
    ]
    assert self_time(stacks) == {"done (service/door.py)": 1}


def test_each_cell_has_a_table() -> None:
    """Of the shares as they were kept."""
    line = {"kind": "profile", "net": "S", "request": "JSON", "rows": 1, "connections": 64}
    told = hotspots([{"kind": "machine"}, {**line, "what": "done (service/door.py)", "share": 0.125}])
    assert "**S, JSON, rows: 1, connections: 64**" in told
    assert "| `done (service/door.py)` | 12.5% |" in told
