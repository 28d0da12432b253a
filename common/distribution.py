"""The name and version of the distribution, and the command that installs its extras.

All messages take that command from here. The distribution has another name than the package, because
`turnpike` on the package index is another project.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

NAME = "turnpike-onnx"
VERSION = "0.2.0"
# whether the index has this distribution under NAME; until then it is installed from a checkout or a wheel
IS_PUBLISHED = False

_FOLDER = Path(__file__).resolve().parents[1]
_CHECKOUT = _FOLDER if (_FOLDER / "pyproject.toml").is_file() else None


def install_command(extras: str) -> str:
    """The command that installs extras, such as "serve" or "serve,grpc".

    A checkout is named by its folder. A wheel is named by its file, which is in a folder of the user's.
    """
    if _CHECKOUT:
        return f"pip install -e '{_CHECKOUT}[{extras}]'"
    source = NAME if IS_PUBLISHED else f"{NAME.replace('-', '_')}-{VERSION}-py3-none-any.whl"
    return f"pip install '{source}[{extras}]'"


def needs_extra(subject: str, module: str, extras: str) -> str:
    """The message that a module is missing: what needs it, and the command that installs it."""
    return f"{subject} needs {module}, which is not installed: {install_command(extras)}"


@contextmanager
def needing_extra(subject: str, extras: str) -> Iterator[None]:
    """Let the error of an import that fails in this block name the extra that installs the library."""
    try:
        yield
    except ModuleNotFoundError as error:
        if str(error.name).partition(".")[0] == "turnpike":
            raise
        raise ModuleNotFoundError(needs_extra(subject, str(error.name), extras), name=error.name) from error
