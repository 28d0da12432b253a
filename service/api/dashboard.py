"""The dashboard at `/`: files of the folder beside this one, and the charts' library out of its package.

They are open to everyone, as they hold no data: what the page asks of the API it asks with a key.
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

from service.errors import NotFoundError
from service.http.auth import Authenticator

FOLDER = Path(__file__).parents[1] / "dashboard"
INDEX = "index.html"
# runs before anything is painted, and is no module
EARLY = "shell/early_theme.js"
LIBRARY = "plotly.js"
IN_PACKAGE = "plotly/package_data/plotly.min.js"
# where the page reads which release of the library there is
RELEASE = b'<meta name="plotly" content="%s">'

TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
SECURITY = {
    "Content-Security-Policy": POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
}
# the page's modules import one another: named at the start, all are fetched at once
HEAD_END = b"</head>"
MODULE = '<link rel="modulepreload" href="dashboard/%s">\n'
# bytes of an answer that are sent at once
PIECE = 1 << 14
ASK_AGAIN = "no-cache"
# a weight by which a client says that it does not take a coding
REFUSED = re.compile(r"\s*q=0(\.0*)?\s*")
FOR_GOOD = "public, max-age=31536000, immutable"


@dataclass(frozen=True, slots=True)
class Packed:
    """What a file holds, as gzip, with its size before that and a tag that stands for just that content."""

    data: bytes
    size: int
    tag: str


class Asset:
    """A file of the page, read and packed when it is first asked for and then kept."""

    def __init__(self, suffix: str, read: Callable[[], bytes], release: str | None = None) -> None:
        self._type = TYPES[suffix]
        self._read = read
        self._release = release
        self._packed: Packed | None = None

    async def answer(self, request: Request) -> Response:
        """The file as the client can read it, or word that it has it already."""
        packed = self._packed
        if packed is None:
            packed = self._packed = await asyncio.to_thread(_pack, self._read)
        known = self._release is not None and request.query_params.get("v") == self._release
        headers = {
            **SECURITY,
            "Content-Type": self._type,
            "Cache-Control": FOR_GOOD if known else ASK_AGAIN,
            "ETag": packed.tag,
            "Vary": "Accept-Encoding",
        }
        if _has(request.headers, packed.tag):
            return Response(status_code=304, headers=headers)
        if _takes_gzip(request.headers):
            headers["Content-Encoding"] = "gzip"
            return _streamed(_pieces(packed.data), len(packed.data), headers)
        return _streamed(_unpacked(packed.data), packed.size, headers)


def add_page(app: FastAPI, access: Authenticator) -> None:
    """Give the application its dashboard. The names of its files are fixed here: no request names a path."""
    library, release = _library()
    assets = {
        path.relative_to(FOLDER).as_posix(): Asset(path.suffix, path.read_bytes)
        for path in FOLDER.rglob("*")
        if path.suffix in TYPES
    }
    assets[INDEX] = Asset(".html", lambda: _index(release))
    if library is not None:
        assets[LIBRARY] = Asset(".js", library.read_bytes, release)
    anyone = [Depends(access.needs("open"))]

    @app.api_route("/", methods=["GET", "HEAD"], include_in_schema=False, dependencies=anyone)
    async def page(request: Request) -> Response:
        return await assets[INDEX].answer(request)

    @app.api_route(
        "/dashboard/{file:path}", methods=["GET", "HEAD"], include_in_schema=False, dependencies=anyone
    )
    async def part(file: str, request: Request) -> Response:
        if file == LIBRARY and library is None:
            raise NotFoundError(
                "/dashboard: expected the package plotly on the server, and it is not installed"
            )
        if file not in assets:
            raise NotFoundError(f"/dashboard: expected a file of the page, got {file[:80]!r}")
        return await assets[file].answer(request)


def _library() -> tuple[Path | None, str]:
    """The library and its release, nothing where its package is absent; nothing of it is imported."""
    try:
        package = distribution("plotly")
    except PackageNotFoundError:
        return None, ""
    path = Path(str(package.locate_file(IN_PACKAGE)))
    return (path, package.version) if path.is_file() else (None, "")


def _index(release: str) -> bytes:
    names = {path.relative_to(FOLDER).as_posix() for path in FOLDER.rglob("*.js")} - {EARLY}
    modules = "".join(MODULE % name for name in sorted(names)).encode()
    page = (FOLDER / INDEX).read_bytes().replace(RELEASE % b"", RELEASE % release.encode())
    return page.replace(HEAD_END, modules + HEAD_END)


def _pack(read: Callable[[], bytes]) -> Packed:
    data = read()
    return Packed(gzip.compress(data, mtime=0), len(data), f'W/"{sha256(data).hexdigest()[:32]}"')


def _streamed(pieces: AsyncIterator[bytes], size: int, headers: dict[str, str]) -> Response:
    return StreamingResponse(pieces, headers=headers | {"Content-Length": str(size)})


async def _pieces(data: bytes) -> AsyncIterator[bytes]:
    """A little at a time, so that a client that reads slowly keeps no copy of it all in memory."""
    for start in range(0, len(data), PIECE):
        yield data[start : start + PIECE]


async def _unpacked(data: bytes) -> AsyncIterator[bytes]:
    """For the few that do not take gzip; to keep this form, too, would cost every worker the memory."""
    unpacking = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
    async for piece in _pieces(data):
        yield unpacking.decompress(piece)


def _has(headers: Headers, tag: str) -> bool:
    """Whether the client has what this tag stands for."""
    asked = headers.get("if-none-match", "")
    return tag.removeprefix("W/") in (one.strip().removeprefix("W/") for one in asked.split(","))


def _takes_gzip(headers: Headers) -> bool:
    for one in headers.get("accept-encoding", "").split(","):
        coding, _, weight = one.partition(";")
        if coding.strip().lower() == "gzip":
            return not REFUSED.fullmatch(weight)
    return False
