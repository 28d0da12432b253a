"""Serves the dashboard to browsers: files of `service/dashboard`, and the JavaScript of the package plotly.

The files need no key, because they contain no data: the page sends its key with every request to the API.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from turnpike.service.errors import NotFoundError
from turnpike.service.http.asgi import AsgiEndpoint
from turnpike.service.http.static_file import SECURITY_HEADERS, StaticFile
from turnpike.service.requests.request import Request
from turnpike.service.requests.router import Endpoint, Router

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
HEAD_END = b"</head>"
# lets the browser fetch all modules at once, instead of one level of imports after the other
MODULE_PRELOAD = '<link rel="modulepreload" href="dashboard/%s">\n'


def add_routes(router: Router, folder: Path = FOLDER) -> Endpoint:
    """Add the dashboard's files, and return the endpoint of its page.

    The files are listed here, once, so that no request names a path on the disk.
    """
    library, version = _find_chart_library()
    files = {
        _name(path, folder): AsgiEndpoint(_file(path.suffix, path.read_bytes))
        for path in folder.rglob("*")
        if path.suffix in MEDIA_TYPES
    }
    files[INDEX] = AsgiEndpoint(_file(".html", lambda: _index_page(folder, version)))
    if library is not None:
        files[CHART_LIBRARY] = AsgiEndpoint(_file(".js", library.read_bytes, version))

    async def dashboard_file(request: Request) -> None:
        name = request.path_params["file"]
        if name == CHART_LIBRARY and library is None:
            raise NotFoundError(
                "/dashboard: expected the package plotly to be installed on the server, and it is not"
            )
        if name not in files:
            raise NotFoundError(f"/dashboard: expected a file of the dashboard, got {name[:80]!r}")
        await files[name](request)

    router.add("GET", "/dashboard/{file:path}", "open", dashboard_file, "dashboard_file", {})
    return AsgiEndpoint(_file(".html", lambda: _index_page(folder, version), vary="Accept, Accept-Encoding"))


def _file(
    suffix: str, read: Callable[[], bytes], version: str | None = None, vary: str = "Accept-Encoding"
) -> StaticFile:
    return StaticFile(MEDIA_TYPES[suffix], read, version, SECURITY_HEADERS, vary)


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
