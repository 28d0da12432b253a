"""Downloads from a local server."""

from __future__ import annotations

import hashlib
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from turnpike.models.data.download import RemoteFile, data_set_folder, fetch
from turnpike.models.errors import DataError

BODY = bytes(range(256)) * 20


class Handler(BaseHTTPRequestHandler):
    """/good/ has the file, /other/ another file, /short/ ends early, /endless/ never ends, /silent/ never
    answers.
    """

    requested_paths: list[str]
    release: threading.Event

    def do_GET(self) -> None:
        self.requested_paths.append(self.path)
        folder = self.path.split("/")[1]
        if folder == "missing":
            self.send_error(404)
            return
        if folder == "silent":
            self.release.wait(5)
            return
        self.send_response(200)
        if folder != "endless":
            self.send_header("Content-Length", str(len(BODY)))
        self.end_headers()
        parts = {"good": BODY, "other": BODY[::-1], "short": BODY[:100], "endless": BODY * 1000}
        with suppress(OSError):  # the client may have closed the connection
            self.wfile.write(parts[folder])

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


class Site:
    def __init__(self, url: str, requested_paths: list[str]) -> None:
        self.url = url
        self.requested_paths = requested_paths

    def remote(self, *folders: str, max_bytes: int = len(BODY)) -> RemoteFile:
        return RemoteFile(
            name="file.gz",
            sha256=hashlib.sha256(BODY).hexdigest(),
            max_bytes=max_bytes,
            mirrors=tuple(f"{self.url}/{folder}/" for folder in folders),
        )


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    requested_paths: list[str] = []
    release = threading.Event()
    handler = type("Own", (Handler,), {"requested_paths": requested_paths, "release": release})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield Site(f"http://127.0.0.1:{server.server_port}", requested_paths)
    finally:
        release.set()
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_downloaded_file_is_cached(site: Site, tmp_path: Path) -> None:
    """A file is downloaded once, into a new folder; afterwards it comes from the cache."""
    folder = tmp_path / "new" / "cache"
    path = fetch(site.remote("good"), folder)
    assert path == folder / "file.gz"
    assert path.read_bytes() == BODY
    assert fetch(site.remote("good"), folder) == path
    assert site.requested_paths == ["/good/file.gz"]
    assert list(folder.iterdir()) == [path]


def test_a_damaged_cache_is_fetched_again(site: Site, tmp_path: Path) -> None:
    (tmp_path / "file.gz").write_bytes(b"damaged")
    assert fetch(site.remote("good"), tmp_path).read_bytes() == BODY


@pytest.mark.parametrize("bad", ["missing", "other", "short", "endless"])
def test_the_next_mirror_is_tried(site: Site, tmp_path: Path, bad: str) -> None:
    """Mirrors without the file, or with a wrong, short or endless file, are skipped."""
    assert fetch(site.remote(bad, "good"), tmp_path).read_bytes() == BODY
    assert site.requested_paths == [f"/{bad}/file.gz", "/good/file.gz"]


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ("missing", "404"),
        ("other", "expected sha256"),
        ("short", "expected 5120 bytes, the connection ended after 100"),
        ("endless", "expected at most 5120 bytes, got more"),
    ],
)
def test_without_a_good_mirror_the_cache_stays_empty(
    site: Site, tmp_path: Path, bad: str, reason: str
) -> None:
    """The error gives the reason of each mirror and suggests --data-dir."""
    with pytest.raises(DataError) as caught:
        fetch(site.remote(bad), tmp_path)
    message = str(caught.value)
    assert message.startswith("cannot download file.gz (127.0.0.1: ")
    assert reason in message
    assert "--data-dir" in message
    assert "\n" not in message
    assert list(tmp_path.iterdir()) == []


def test_a_bad_download_keeps_the_cached_file(site: Site, tmp_path: Path) -> None:
    """A cached file is replaced by a good one or not at all."""
    (tmp_path / "file.gz").write_bytes(b"damaged")
    with pytest.raises(DataError):
        fetch(site.remote("short"), tmp_path)
    assert (tmp_path / "file.gz").read_bytes() == b"damaged"


def test_an_unreachable_mirror_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error has the reason of every mirror, including a refused connection."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # bound and not listening: connections are refused
        closed = Site(f"http://127.0.0.1:{held.getsockname()[1]}", [])
        with pytest.raises(DataError, match=r"127\.0\.0\.1: .*refused.*; 127\.0\.0\.1: .*--data-dir"):
            fetch(closed.remote("one", "two"), tmp_path)


def test_a_silent_server_times_out(site: Site, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="timed out"):
        fetch(site.remote("silent"), tmp_path, timeout=0.2)


def test_progress_is_reported(site: Site, tmp_path: Path) -> None:
    """The callback gets the file's name, the bytes so far and the total."""
    reports: list[tuple[str, int, int | None]] = []
    fetch(site.remote("good"), tmp_path, progress=lambda *step: reports.append(step))
    assert reports[-1] == ("file.gz", len(BODY), len(BODY))
    assert [done for _, done, _ in reports] == sorted(done for _, done, _ in reports)


def test_an_unwritable_cache_is_reported(site: Site, tmp_path: Path) -> None:
    """The error names the path, and the variable that moves the cache."""
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match=r"cannot use the cache .*TURNPIKE_CACHE"):
        fetch(site.remote("good"), tmp_path / "file" / "cache")


def test_the_cache_needs_a_home_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the variable that replaces it."""
    monkeypatch.delenv("TURNPIKE_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)

    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", homeless)
    with pytest.raises(DataError, match="expected a home folder .* set TURNPIKE_CACHE"):
        data_set_folder("mnist")


def test_a_full_disk_is_reported(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(draft: Path, target: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(DataError, match=r"127\.0\.0\.1: \[Errno 28\] No space left on device"):
        fetch(site.remote("good"), tmp_path)
    assert list(tmp_path.iterdir()) == []
