"""Serves the dashboard to browsers: files of `service/dashboard`, and the JavaScript of the package plotly.

The files need no key, because they contain no data: the page sends its key with every request to the API.
"""

from __future__ import annotations

import asyncio
import gzip
import re
import zlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from fastapi import Depends, FastAPI, Request
from starlette.datastructures import Headers
from starlette.responses import Response, StreamingResponse

from service.api.health import ALIVE, ALIVE_HEADERS
from service.errors import NotFoundError
from service.http.auth import Authenticator

FOLDER = Path(__file__).parents[1] / "dashboard"
INDEX = "index.html"
# a classic script that runs before the first paint, so it must not be preloaded as a module
EARLY_SCRIPT = "shell/early_theme.js"

# The whole package plotly is a dependency for the sake of this one file: it brings the chart library in a
# version that pip pins and checks, without a copy in the repository and without a download by the browser.
# The package and what it needs (narwhals) take about 70 MB installed; the Dockerfile removes all but this
# file of 4.8 MB. None of its Python code is imported here.
CHART_LIBRARY = "plotly.js"
CHART_LIBRARY_IN_PACKAGE = "plotly/package_data/plotly.min.js"
# where the page finds the version of the chart library, which it adds to the library's URL
VERSION_TAG = b'<meta name="plotly" content="%s">'

MEDIA_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
SECURITY_HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
}
HEAD_END = b"</head>"
# lets the browser fetch all modules at once, instead of one level of imports after the other
MODULE_PRELOAD = '<link rel="modulepreload" href="dashboard/%s">\n'
# bytes of a response body that are sent at a time
CHUNK_SIZE = 1 << 14
REVALIDATE = "no-cache"
CACHE_FOREVER = "public, max-age=31536000, immutable"
# the value of q in the headers Accept and Accept-Encoding
WEIGHT = re.compile(r"0(\.\d{0,3})?|1(\.0{0,3})?")


@dataclass(frozen=True, slots=True)
class CompressedFile:
    """Content of a file: compressed with gzip, its original size in bytes, and an ETag of the content."""

    data: bytes
    size: int
    etag: str


class StaticFile:
    """A file of the dashboard, read and compressed on the first request and then kept in memory."""

    def __init__(self, suffix: str, read: Callable[[], bytes], version: str | None = None) -> None:
        """`version` is the one that a URL may name as `?v=` to be cached for ever."""
        self._media_type = MEDIA_TYPES[suffix]
        self._read = read
        self._version = version
        self._file: CompressedFile | None = None

    async def response(self, request: Request) -> Response:
        """The file, compressed if the client accepts gzip, or 304 if the client already has it."""
        file = self._file
        if file is None:
            file = self._file = await asyncio.to_thread(_compress, self._read)
        versioned = self._version is not None and request.query_params.get("v") == self._version
        headers = {
            **SECURITY_HEADERS,
            "Content-Type": self._media_type,
            "Cache-Control": CACHE_FOREVER if versioned else REVALIDATE,
            "ETag": file.etag,
            "Vary": "Accept-Encoding",
        }
        if _has_current(request.headers, file.etag):
            return Response(status_code=304, headers=headers)
        if _accepts_gzip(request.headers):
            headers["Content-Encoding"] = "gzip"
            return _streamed(_chunks(file.data), len(file.data), headers)
        return _streamed(_decompressed(file.data), file.size, headers)


def add_dashboard(app: FastAPI, auth: Authenticator, folder: Path = FOLDER) -> None:
    """Add the dashboard. Its files are listed here, once, so that no request names a path on the disk."""
    library, version = _find_chart_library()
    files = {
        _name(path, folder): StaticFile(path.suffix, path.read_bytes)
        for path in folder.rglob("*")
        if path.suffix in MEDIA_TYPES
    }
    files[INDEX] = StaticFile(".html", lambda: _index_page(folder, version))
    if library is not None:
        files[CHART_LIBRARY] = StaticFile(".js", library.read_bytes, version)
    without_key = [Depends(auth.require("open"))]

    @app.get("/", include_in_schema=False, dependencies=without_key)
    async def index(request: Request) -> Response:
        if not _accepts_page(request.headers):
            return Response(ALIVE, media_type="application/json", headers=ALIVE_HEADERS)
        response = await files[INDEX].response(request)
        response.headers["Vary"] = "Accept, Accept-Encoding"
        return response

    @app.get("/dashboard/{file:path}", include_in_schema=False, dependencies=without_key)
    async def dashboard_file(file: str, request: Request) -> Response:
        if file == CHART_LIBRARY and library is None:
            raise NotFoundError(
                "/dashboard: expected the package plotly to be installed on the server, and it is not"
            )
        if file not in files:
            raise NotFoundError(f"/dashboard: expected a file of the dashboard, got {file[:80]!r}")
        return await files[file].response(request)


def _find_chart_library() -> tuple[Path | None, str]:
    """Path and version of the chart library, (None, "") if its package is not installed."""
    try:
        package = distribution("plotly")
    except PackageNotFoundError:
        return None, ""
    path = Path(str(package.locate_file(CHART_LIBRARY_IN_PACKAGE)))
    return (path, package.version) if path.is_file() else (None, "")


def _name(path: Path, folder: Path) -> str:
    return path.relative_to(folder).as_posix()


def _index_page(folder: Path, version: str) -> bytes:
    modules = sorted({_name(path, folder) for path in folder.rglob("*.js")} - {EARLY_SCRIPT})
    preloads = "".join(MODULE_PRELOAD % module for module in modules).encode()
    page = (folder / INDEX).read_bytes().replace(VERSION_TAG % b"", VERSION_TAG % version.encode())
    return page.replace(HEAD_END, preloads + HEAD_END)


def _compress(read: Callable[[], bytes]) -> CompressedFile:
    data = read()
    return CompressedFile(gzip.compress(data, mtime=0), len(data), f'W/"{sha256(data).hexdigest()[:32]}"')


def _streamed(chunks: AsyncIterator[bytes], size: int, headers: dict[str, str]) -> Response:
    return StreamingResponse(chunks, headers=headers | {"Content-Length": str(size)})


async def _chunks(data: bytes) -> AsyncIterator[bytes]:
    """Small pieces of the data, so that a client that reads slowly does not keep a second copy in memory."""
    for start in range(0, len(data), CHUNK_SIZE):
        yield data[start : start + CHUNK_SIZE]


async def _decompressed(data: bytes) -> AsyncIterator[bytes]:
    """For the few clients without gzip; keeping the original as well would cost memory in every worker."""
    decompressor = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
    async for chunk in _chunks(data):
        yield decompressor.decompress(chunk)


def _has_current(headers: Headers, etag: str) -> bool:
    """Whether If-None-Match names this ETag."""
    known = headers.get("if-none-match", "").split(",")
    return etag.removeprefix("W/") in (tag.strip().removeprefix("W/") for tag in known)


def _accepts_page(headers: Headers) -> bool:
    """Whether a client wants HTML, as browsers do, and not rather JSON.

    Programs often accept anything, `*/*`. Browsers name HTML first.
    """
    weights = _weights(headers.get("accept", ""))
    return 0 < weights.get("text/html", 0) >= weights.get("application/json", 0)


def _accepts_gzip(headers: Headers) -> bool:
    return _weights(headers.get("accept-encoding", "")).get("gzip", 0) > 0


def _weights(header: str) -> dict[str, float]:
    """Weight of each item that a client accepts: 0 refuses it, 1 is the most and the default."""
    weights = {}
    for text in header.lower().split(","):
        item, *parameters = (part.strip() for part in text.split(";"))
        weight = next((part[2:] for part in parameters if part.startswith("q=")), "1")
        weights[item] = float(weight) if WEIGHT.fullmatch(weight) else 0.0
    return weights
