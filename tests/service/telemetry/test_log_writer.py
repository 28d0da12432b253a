"""Tests of the log writer: nothing waits for it, what it writes is whole, and what it drops is counted."""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from tests.support.full_pipe import full_pipe
from tests.support.live_server import ROOT
from tests.support.waiting import wait_until
from turnpike.service.telemetry import log_writer as writers
from turnpike.service.telemetry.log_writer import RESERVED_BYTES, LogWriter, pieces

# more than a pipe holds
MANY_LINES = [b"%06d %b\n" % (number, b"x" * 200) for number in range(3000)]


class Pipe:
    """A pipe; `read` starts a thread that reads it until all writers have closed it."""

    def __init__(self) -> None:
        self.read_end, self.write_end = os.pipe()
        self._data = bytearray()
        self._thread = threading.Thread(target=self._read, daemon=True)

    def read(self) -> None:
        self._thread.start()

    def lines(self) -> list[bytes]:
        """The lines so far."""
        return bytes(self._data).splitlines(keepends=True)

    def close(self) -> list[bytes]:
        """Close the writing end and return all lines."""
        os.close(self.write_end)
        self._thread.join(10)
        os.close(self.read_end)
        return self.lines()

    def _read(self) -> None:
        while data := os.read(self.read_end, 1 << 16):
            self._data += data


@pytest.fixture
def pipe() -> Pipe:
    return Pipe()


@pytest.fixture
def reports(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[LogWriter], None]]:
    """Sends what the module logs to a writer."""

    def send_to(writer: LogWriter) -> None:
        handler = logging.Handler()
        handler.emit = lambda record: writer.add_now(record.getMessage().encode() + b"\n")
        writers.log.addHandler(handler)

    monkeypatch.setattr(writers.log, "propagate", False)
    yield send_to
    writers.log.handlers.clear()


def ends(action: Callable[[], object], seconds: float = 5) -> bool:
    """Whether an action ends in time. It goes on in its thread if not."""
    thread = threading.Thread(target=action, daemon=True)
    thread.start()
    thread.join(seconds)
    return not thread.is_alive()


def add_all(writer: LogWriter, lines: list[bytes]) -> None:
    for line in lines:
        writer.add(line)


def dropped_by(line: bytes) -> int:
    """The number in a report of dropped lines."""
    match = re.search(rb"(\d+) lines of the log were dropped", line)
    assert match, line
    return int(match[1])


def test_lines_are_written_in_order(pipe: Pipe) -> None:
    writer = LogWriter(pipe.write_end)
    pipe.read()
    for number, line in enumerate(MANY_LINES):
        (writer.add_now if number % 7 == 0 else writer.add)(line)
    assert writer.flush(10)
    assert pipe.close() == MANY_LINES
    assert writer.dropped == 0


def test_lines_of_requests_are_collected_and_others_are_not(
    pipe: Pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writers, "COLLECT_SECONDS", 60)
    writer = LogWriter(pipe.write_end)
    pipe.read()
    writer.add(b"a request\n")
    time.sleep(0.1)
    assert pipe.lines() == []
    writer.add_now(b"a message\n")
    wait_until(lambda: pipe.lines() == [b"a request\n", b"a message\n"], 5)


@pytest.mark.parametrize("method", ["add", "add_now"])
def test_adding_does_not_wait_for_a_reader(pipe: Pipe, method: str) -> None:
    writer = LogWriter(pipe.write_end)
    add = getattr(writer, method)
    assert ends(lambda: [add(line) for line in MANY_LINES])
    # the other test of a pair: the same lines do not fit into the pipe
    assert not ends(lambda: [os.write(pipe.write_end, line) for line in MANY_LINES], 0.5)


def test_a_late_reader_gets_whole_lines_and_the_number_of_dropped_ones(
    pipe: Pipe, reports: Callable[[LogWriter], None]
) -> None:
    """Lines that find no room are dropped until half of the buffer is free, so that there is one report."""
    writer = LogWriter(pipe.write_end, max_waiting_bytes=100_000)
    reports(writer)
    add_all(writer, MANY_LINES)
    dropped = writer.dropped
    assert 0 < dropped < len(MANY_LINES)
    pipe.read()
    wait_until(lambda: pipe.lines() and b"dropped" in pipe.lines()[-1], 5)
    later = [b"later %d\n" % number for number in range(100)]
    add_all(writer, later)
    assert writer.flush(5)
    accepted = len(MANY_LINES) - dropped
    *lines, report = pipe.close()[: accepted + 1]
    assert lines == MANY_LINES[:accepted]
    assert dropped_by(report) == dropped
    assert pipe.lines()[accepted + 1 :] == later
    assert writer.dropped == dropped


def test_lines_of_requests_are_dropped_until_half_of_the_buffer_is_free(
    pipe: Pipe, reports: Callable[[LogWriter], None]
) -> None:
    """Otherwise a slow reader would get a report of dropped lines after each few lines."""
    writer = LogWriter(pipe.write_end, max_waiting_bytes=400_000)
    reports(writer)
    # the thread begins with these lines and waits for a reader; the others wait for the thread
    add_all(writer, MANY_LINES[:500])
    wait_until(lambda: writer._written_bytes > 60_000, 5)
    add_all(writer, MANY_LINES[500:])
    dropped = writer.dropped
    assert dropped
    received = b""
    while len(received) < 150_000:
        received += os.read(pipe.read_end, 50_000)
    time.sleep(0.1)
    writer.add(b"a line\n")
    assert writer.dropped == dropped + 1
    pipe.read()
    wait_until(lambda: pipe.lines() and b"dropped" in pipe.lines()[-1], 5)
    writer.add(b"later\n")
    assert writer.flush(5)
    *_, report, later = pipe.close()
    assert dropped_by(report) == dropped + 1
    assert later == b"later\n"
    assert sum(b"dropped" in line for line in pipe.lines()) == 1


def test_messages_have_room_when_requests_have_filled_the_buffer(pipe: Pipe) -> None:
    """The log must still tell later what happened. The reserved room is limited, too."""
    writer = LogWriter(pipe.write_end, max_waiting_bytes=100_000)
    add_all(writer, MANY_LINES)
    dropped = writer.dropped
    writer.add_now(b"a worker died" + b"y" * 1000 + b"\n")
    assert writer.dropped == dropped
    for _ in range(RESERVED_BYTES // 1000 + 10):
        writer.add_now(b"y" * 999 + b"\n")
    assert dropped < writer.dropped < dropped + 20
    pipe.read()
    assert writer.flush(5)
    assert any(line.startswith(b"a worker died") for line in pipe.close())


def test_no_line_is_lost_at_full_speed(pipe: Pipe) -> None:
    """20,000 lines in a second, which a reader reads."""
    writer = LogWriter(pipe.write_end)
    pipe.read()
    lines = [b"%06d %b\n" % (number, b"x" * 300) for number in range(20_000)]
    start = time.monotonic()
    for first in range(0, len(lines), 200):
        add_all(writer, lines[first : first + 200])
        time.sleep(max(0.0, start + first / 20_000 - time.monotonic()))
    assert writer.flush(10)
    assert pipe.close() == lines
    assert writer.dropped == 0


def test_processes_do_not_mix_their_lines(pipe: Pipe) -> None:
    """A forked process has a writer of its own, and leaves the lines that were waiting to its parent."""
    writer = LogWriter(pipe.write_end)
    os.register_at_fork(after_in_child=writer.reset)
    add_all(writer, MANY_LINES)
    children = []
    for name in (b"a", b"b"):
        child = os.fork()
        if not child:
            with contextlib.suppress(BaseException):
                add_all(writer, [name + line for line in MANY_LINES])
                os._exit(not writer.flush(20))
            os._exit(2)
        children.append(child)
    pipe.read()
    assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [0, 0]
    assert writer.flush(20)
    lines = pipe.close()
    assert [line for line in lines if line[:1] not in b"ab"] == MANY_LINES
    for name in (b"a", b"b"):
        assert [line for line in lines if line[:1] == name] == [name + line for line in MANY_LINES]


def test_a_flush_does_not_wait_for_ever(pipe: Pipe) -> None:
    writer = LogWriter(pipe.write_end)
    assert writer.flush(0)
    add_all(writer, MANY_LINES)
    begun = time.monotonic()
    assert not writer.flush(0.2)
    assert 0.2 <= time.monotonic() - begun < 5


def test_what_cannot_be_written_is_counted(pipe: Pipe, reports: Callable[[LogWriter], None]) -> None:
    """A full disk drops lines without a report for each report; when there is room again, there is one."""
    full = os.open("/dev/full", os.O_WRONLY)
    writer = LogWriter(full)
    reports(writer)
    add_all(writer, MANY_LINES)
    assert writer.flush(5)
    assert writer.dropped == len(MANY_LINES)
    time.sleep(0.1)
    assert writer.dropped == len(MANY_LINES)
    writer.descriptor = pipe.write_end
    pipe.read()
    writer.add(b"more\n")
    wait_until(lambda: len(pipe.lines()) == 2, 5)
    os.close(full)
    more, report = pipe.close()
    assert more == b"more\n"
    assert dropped_by(report) == len(MANY_LINES)


def test_a_full_disk_does_not_keep_a_full_buffer_from_recovering(pipe: Pipe) -> None:
    """Lines were dropped for want of room, then the writes fail; afterwards all is well."""
    writer = LogWriter(pipe.write_end, max_waiting_bytes=100_000)
    add_all(writer, MANY_LINES)
    dropped = writer.dropped
    os.close(pipe.read_end)
    assert writer.flush(5)
    other = Pipe()
    writer.descriptor = other.write_end
    other.read()
    writer.add(b"more\n")
    assert writer.flush(5)
    assert other.close() == [b"more\n"]
    assert writer.dropped == len(MANY_LINES) > dropped
    os.close(pipe.write_end)


def test_a_lack_of_memory_does_not_end_the_thread(pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = LogWriter(pipe.write_end)
    pipe.read()

    def fail(data: bytes) -> bool:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(writer, "_write", fail)
        writer.add_now(b"lost\n")
        assert writer.flush(5)
    assert writer.dropped == 1
    writer.add_now(b"more\n")
    assert writer.flush(5)
    assert b"more\n" in pipe.close()


def test_a_nonblocking_pipe_loses_nothing(pipe: Pipe) -> None:
    """Another process may have set the flag, which a pipe's processes share."""
    flags = fcntl.fcntl(pipe.write_end, fcntl.F_GETFL)
    fcntl.fcntl(pipe.write_end, fcntl.F_SETFL, flags | os.O_NONBLOCK)
    writer = LogWriter(pipe.write_end)
    add_all(writer, MANY_LINES)
    assert not writer.flush(0.2)
    pipe.read()
    assert writer.flush(5)
    assert pipe.close() == MANY_LINES


def test_a_file_gets_all_lines_in_few_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each write lets another thread run Python first, so it should have many lines."""
    sizes: list[int] = []
    write = os.write

    def recorded_write(descriptor: int, data: memoryview) -> int:
        sizes.append(len(data))
        return write(descriptor, data)

    path = tmp_path / "log"
    with path.open("wb") as file:
        writer = LogWriter(file.fileno())
        monkeypatch.setattr(writers.os, "write", recorded_write)
        writer.add(b"".join(MANY_LINES))
        assert writer.flush(5)
    assert path.read_bytes() == b"".join(MANY_LINES)
    assert len(sizes) <= -(-len(path.read_bytes()) // writers.FILE_BYTES) + 1


def test_a_socket_gets_all_lines() -> None:
    """The journal of systemd reads from one."""
    ours, theirs = socket.socketpair()
    writer = LogWriter(ours.fileno())
    add_all(writer, MANY_LINES)
    with theirs, theirs.makefile("rb") as file:
        assert [next(file) for _ in MANY_LINES] == MANY_LINES
    assert writer.flush(5)
    ours.close()


@pytest.mark.parametrize(
    "sizes", [[], [1], [5000], [100] * 200, [4096, 1, 4096], [5000, 10, 10], [10, 5000, 10]]
)
def test_pieces_have_whole_lines(sizes: list[int]) -> None:
    """No piece exceeds PIPE_BUF unless it is a single line; nothing is lost."""
    lines = [b"%d" % (number % 10) * (size - 1) + b"\n" for number, size in enumerate(sizes)]
    parts = [bytes(part).splitlines(keepends=True) for part in pieces(b"".join(lines), 4096)]
    assert [line for part in parts for line in part] == lines
    for part in parts:
        assert sum(map(len, part)) <= 4096 or len(part) == 1
    for part, following in pairwise(parts):
        assert sum(map(len, part)) + len(following[0]) > 4096


# what a process writes last: lines of requests, a warning, an error in a thread, and the one that ends it
LAST_WORDS = """
import sys, threading, warnings
from turnpike.service.telemetry.access_log import access_log
from turnpike.service.telemetry.log import configure_logging
from turnpike.service.telemetry.log_writer import log_writer

{configure}
for number in range(2000):
    access_log.add([(("127.0.0.1", "GET", "/" + str(number), "/", 200, None, 0), "id", 1, None, None)])
warnings.warn("take care")
def fail():
    raise ValueError("in a thread")
thread = threading.Thread(target=fail)
thread.start()
thread.join()
class Last:
    def __del__(self):
        print("unfinished", end="", file=sys.stderr)
        print("", file=sys.__stderr__)
last = Last()
print("no line end", end="", file=sys.stderr)
raise KeyError("at the end")
"""


@pytest.mark.parametrize("configure", ['configure_logging("info")', ""])
def test_nothing_is_lost_at_the_end_of_a_process(configure: str) -> None:
    """Not even without `configure_logging`, as under another ASGI server."""
    result = subprocess.run(
        [sys.executable, "-c", LAST_WORDS.format(configure=configure)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert result.returncode == 1
    paths = [json.loads(line)["path"] for line in result.stderr.splitlines() if line.startswith("{")]
    assert paths == [f"/{number}" for number in range(2000)]
    for words in (
        "take care",
        "ValueError: in a thread",
        "no line end",
        "KeyError: 'at the end'",
        "unfinished",
    ):
        assert words in result.stderr


@pytest.mark.slow
def test_a_process_ends_although_nobody_reads() -> None:
    """What Python itself writes does not wait either: warnings, and errors in threads or at the end."""
    read_end, write_end = full_pipe()
    code = LAST_WORDS.format(configure='configure_logging("info")').replace("sys.__stderr__", "sys.stderr")
    process = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stderr=write_end)
    assert process.wait(20) == 1
    os.close(read_end)
    os.close(write_end)


def test_the_log_does_not_go_where_closed_standard_error_was(tmp_path: Path) -> None:
    """The next file that a process opens gets its number."""
    code = """
import os, sys
assert os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY) == 2
from turnpike.service.telemetry.log_writer import log_writer, unblock_stderr
unblock_stderr()
print("a message", file=sys.stderr)
assert log_writer.flush(5)
"""
    command = ["/bin/sh", "-c", 'exec "$@" 2>&-', "sh", sys.executable, "-c", code, str(tmp_path / "file")]
    subprocess.run(command, cwd=ROOT, timeout=60, check=True)
    assert (tmp_path / "file").read_bytes() == b""
