"""The name and version of the distribution, and the command that installs its extras.

All messages take that command from here. The distribution has another name than the package, because
`turnpike` on the package index is another project.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import unquote, urlsplit

NAME = "turnpike-onnx"
VERSION = "0.2.0"
# whether the index has this distribution under NAME; until then it is installed from a clone or a wheel
IS_PUBLISHED = False


def install_command(extras: str) -> str:
    """The command that installs extras, such as "serve" or "serve,grpc", from where turnpike came from."""
    if IS_PUBLISHED:
        return f"pip install '{NAME}[{extras}]'"
    option, source = _origin()
    return f"pip install {option}'{source}[{extras}]'"


def needs_extra(subject: str, module: str, extras: str) -> str:
    """The message that a module is missing: what needs it, and the command that installs it."""
    return f"{subject} needs {module}, which is not installed: {install_command(extras)}"


def missing_library(error: ImportError) -> str | None:
    """The library that is not installed; None if the import failed for another reason."""
    name = error.name if isinstance(error, ModuleNotFoundError) else None
    return name if name and name.partition(".")[0] != "turnpike" else None


@contextmanager
def needing_extra(subject: str, extras: str) -> Iterator[None]:
    """Let the error of an import that fails in this block name the extra that installs the library."""
    try:
        yield
    except ModuleNotFoundError as error:
        library = missing_library(error)
        if library is None:
            raise
        raise ModuleNotFoundError(needs_extra(subject, library, extras), name=library) from None


def _origin() -> tuple[str, str]:
    """An option of pip, and the folder or wheel that turnpike was installed from, as pip and uv note it."""
    from importlib.metadata import distributions

    # a clone on the path has metadata too, but no note
    notes = [note for found in distributions(name=NAME) if (note := found.read_text("direct_url.json"))]
    record = json.loads(notes[0]) if notes else {}
    path = unquote(urlsplit(record.get("url", "")).path)
    if not path or not Path(path).exists():
        return "", f"{NAME.replace('-', '_')}-{VERSION}-py3-none-any.whl"
    return ("-e " if record.get("dir_info", {}).get("editable") else ""), path
