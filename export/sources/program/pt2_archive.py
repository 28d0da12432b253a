"""Opens .pt2 files of torch.export.save without unpickling anything, and writes a harmless copy.

PyTorch's own reader unpickles whatever a file declares as pickled, and loads compiled code that is stored
beside it. So it is given an archive made here, with nothing but the checked JSON of the program and the raw
bytes of the tensors.
"""

from __future__ import annotations

import io
import json
import math
import re
import zipfile
from pathlib import Path
from typing import Any

from torch.export.pt2_archive._package import PT2ArchiveWriter

from turnpike.export.errors import RefusedError, SourceError, error_with_type, one_line
from turnpike.export.sources.program.pt2_sanitizer import sanitize

MAX_ARCHIVE_BYTES = 2 << 30
# elements that tensors may claim beyond the bytes in the file, by strides that repeat elements
MAX_REPEATED_ELEMENTS = 1 << 24

# members of an archive, and what the names of tensor files look like
PROGRAM_MEMBER = "models/model.json"
WEIGHTS_CONFIG = "data/weights/model_weights_config.json"
CONSTANTS_CONFIG = "data/constants/model_constants_config.json"
TENSOR_FILE = re.compile(r"(weight|tensor)_\d+\Z")
# member that only archives of PyTorch before 2.8 have
LEGACY_MEMBER = "serialized_exported_program.json"
RESAVE_HINT = "load it where it was made and save it again with torch.export.save of PyTorch 2.9 or later"


def safe_archive(path: Path) -> io.BytesIO:
    """The archive, written anew without anything that could run code; a RefusedError names such contents."""
    members = _members(path)
    for name in members:
        if name.startswith("data/aotinductor/"):
            raise RefusedError(
                f"{path}: {name}: compiled code is never loaded: save the program with torch.export.save"
            )
    if PROGRAM_MEMBER not in members:
        raise SourceError(
            f"{path}: expected one program of torch.export.save, and there is no {PROGRAM_MEMBER}"
        )
    try:
        program = sanitize(_json(members, PROGRAM_MEMBER, path))
    except (RefusedError, RecursionError) as error:
        raise RefusedError(f"{path}: {PROGRAM_MEMBER}: {error}") from error
    clean = {PROGRAM_MEMBER: json.dumps(program).encode(), "data/sample_inputs/model.pt": b""}
    for config in (WEIGHTS_CONFIG, CONSTANTS_CONFIG):
        clean |= _tensors(members, config, path)
    out = io.BytesIO()
    with PT2ArchiveWriter(out) as writer:
        for name, content in clean.items():
            writer.write_bytes(name, content)
    out.seek(0)
    return out


def _tensors(members: dict[str, bytes], config: str, path: Path) -> dict[str, bytes]:
    """The members that a config lists: the config itself, checked, and the bytes of each tensor."""
    where = f"{path}: {config}"
    pickle_member = config.replace("_weights_config.json", ".pt").replace("_constants_config.json", ".pt")
    if pickle_member in members:
        raise RefusedError(
            f"{path}: {pickle_member}: the tensors are pickled, and pickles are never opened: {RESAVE_HINT}"
        )
    entries = _json(members, config, path)
    tensors = {}
    repeated = 0
    try:
        for name, entry in entries["config"].items():
            file = entry["path_name"]
            if entry["use_pickle"] is not False or not TENSOR_FILE.match(file):
                raise RefusedError(
                    f"{where}: {name!r} is pickled, and pickles are never opened: use plain tensors, "
                    "contiguous and on the CPU"
                )
            meta = entry["tensor_meta"] = sanitize(entry["tensor_meta"])
            member = config.rpartition("/")[0] + "/" + file
            tensors[member] = members[member]
            elements = math.prod(size["as_int"] for size in meta["sizes"])
            repeated += max(0, elements - len(members[member]))
            if elements and not members[member]:  # PyTorch would read zeros
                raise SourceError(f"{where}: {name!r} has no bytes")
    except (KeyError, TypeError, AttributeError) as error:
        raise SourceError(f"{where}: has an unexpected form ({error_with_type(error)})") from error
    if repeated > MAX_REPEATED_ELEMENTS:
        raise RefusedError(f"{where}: its tensors claim {repeated} numbers more than the file has bytes for")
    return {config: json.dumps(entries).encode(), **tensors}


def _members(path: Path) -> dict[str, bytes]:
    """The archive's members by name, without the folder that contains them all."""
    try:
        with zipfile.ZipFile(path) as archive:
            infos = archive.infolist()
            names = [info.filename for info in infos]
            if LEGACY_MEMBER in names:
                raise RefusedError(
                    f"{path}: a .pt2 file from before PyTorch 2.8 stores its tensors as pickles: "
                    f"{RESAVE_HINT}"
                )
            # torch.export.save compresses nothing, and no two members share their bytes
            if sum(info.file_size for info in infos) > min(MAX_ARCHIVE_BYTES, path.stat().st_size):
                raise RefusedError(f"{path}: expected an archive that is not compressed, of at most 2 GiB")
            if len(set(names)) < len(names):
                raise RefusedError(f"{path}: expected members of distinct names")
            return {name.partition("/")[2]: archive.read(name) for name in names}
    except (zipfile.BadZipFile, NotImplementedError, OSError, RuntimeError, EOFError, ValueError) as error:
        raise SourceError(
            f"{path}: expected a file of torch.export.save, cannot read it ({one_line(error)})"
        ) from error


def _json(members: dict[str, bytes], name: str, path: Path) -> Any:
    if name not in members:
        raise SourceError(f"{path}: expected a member {name}, which is missing")
    try:
        return json.loads(members[name])
    except (ValueError, RecursionError) as error:
        raise SourceError(f"{path}: {name}: expected JSON, cannot read it ({one_line(error)})") from error
