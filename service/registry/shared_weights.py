"""Opens a model by its prepared weights, so that all workers of a machine map the same memory.

The first process that loads a file has it prepared, in a process of its own. The others find the prepared
files by the model's digest. They neither read the model nor probe it again.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import time
from dataclasses import asdict
from typing import Any

import numpy as np

from turnpike.service.artifact.manifest import Manifest
from turnpike.service.artifact.runtime import Runtime, open_model, runtime_settings
from turnpike.service.child_process import child_process
from turnpike.service.config.memory_share import allocation_limit, memory_per_worker
from turnpike.service.errors import ModelFileError
from turnpike.service.registry.checked_file import (
    CheckedFile,
    FileOptions,
    JudgedFile,
    batch_dimension,
    check_gates,
    check_inputs,
    check_judged,
    expect_servable,
    judge_file,
    probe_file,
)
from turnpike.service.registry.probe import FEW_ROWS, ProbeResult, find_rows
from turnpike.service.repository.scan import ModelFile, expect_unchanged
from turnpike.service.weights.cache import ModelSlot, WeightsCache
from turnpike.service.weights.entry import Entry
from turnpike.service.weights.preparation import entry_name

log = logging.getLogger(__name__)

# what the process runs that prepares a model, and how long it may take
MODULE = "turnpike.service.registry.weights_preparation"
PREPARATION_SECONDS = 120.0
# bytes at the end of its output that are kept
MAX_KEPT_BYTES = 1 << 16


class _NotSharedError(Exception):
    """Prepared weights cannot be used this time. The model is loaded without them."""


def open_shared(cache: WeightsCache, file: ModelFile, options: FileOptions) -> CheckedFile | None:
    """Open a file by its prepared weights, which are made if there are none.

    None if the cache cannot be used for this file. A ModelFileError says why the file may not be served.
    """
    if file.size < cache.min_model_bytes:
        return None
    try:
        expect_unchanged(file)
        with cache.slot(file.path) as slot:
            opened = _open_in_slot(cache, slot, file, options)
    except (OSError, _NotSharedError) as error:
        log.warning("%s/%d: weights are not shared: %s", file.name, file.version, error)
        return None
    return check_judged(file, opened, options) if isinstance(opened, JudgedFile) else opened


def _open_in_slot(
    cache: WeightsCache, slot: ModelSlot | None, file: ModelFile, options: FileOptions
) -> CheckedFile | JudgedFile:
    """The file by its prepared weights, or its content if it cannot be prepared now."""
    if slot is None:
        raise _NotSharedError("another process is still loading them")
    # a known file is not read
    digest = slot.digest
    if digest is not None and (checked := _open_entry(cache, digest, file, options)) is not None:
        expect_unchanged(file)
        return checked
    judged = judge_file(file, options)
    slot.remember(judged.digest)
    if digest is None and (checked := _open_entry(cache, judged.digest, file, options)) is not None:
        expect_unchanged(file)
        return checked

    # prepare it
    name = _entry_name(cache, judged.digest)
    with cache.draft(slot, name, file.size) as draft:
        if draft is None:
            return judged
        start = time.perf_counter()
        try:
            _prepare(draft, file, options, judged.manifest)
            expect_unchanged(file)
            checked = _open_draft(draft, judged, file, options)
        except _NotSharedError:
            cache.give_up(name)
            raise
        _store_probe(cache.publish(draft, name), checked.result, options)
        log.info(
            "%s/%d: prepared its weights in %.0f ms",
            file.name,
            file.version,
            1000 * (time.perf_counter() - start),
        )
        return checked


def _open_entry(
    cache: WeightsCache, digest: str, file: ModelFile, options: FileOptions
) -> CheckedFile | None:
    """Open the entry of this digest; None if there is none. A damaged one is removed."""
    name = _entry_name(cache, digest)
    entry = cache.find(name)
    if entry is None:
        return None
    where = str(file.path)
    if not entry.is_intact(options.call):
        log.warning("%s/%d: its prepared weights are damaged, and made again", file.name, file.version)
        cache.remove(name)
        return None
    runtime = _open_prepared(entry, options)
    manifest = runtime.manifest
    with np.load(entry.levers, allow_pickle=False) as levers:
        biases = dict(levers)
    entry.touch()
    expect_servable(manifest, options, where)
    text = check_inputs(runtime, manifest, where)
    result = _stored_probe(entry, runtime, options)
    if result is None:
        result = probe_file(file, runtime, options)
        _store_probe(entry, result, options)
    return CheckedFile(digest, manifest, runtime, biases, text, result, mapped=True)


def _prepare(draft: Entry, file: ModelFile, options: FileOptions, manifest: Manifest | None) -> None:
    """Have a process write the files of a draft, and compare them with the model."""
    request = {
        "model": str(file.path),
        "folder": str(draft.folder),
        "threads": options.threads,
        "disabled_optimizers": () if manifest is None else manifest.disabled_optimizers,
        "memory": allocation_limit(options.settings),
    }
    try:
        # this thread has no event loop
        reason = asyncio.run(_run_preparation(json.dumps(request).encode()))
    except TimeoutError as error:
        raise _NotSharedError(f"it takes longer than {PREPARATION_SECONDS:g} s to prepare them") from error
    if reason is not None:
        raise _NotSharedError(reason)


async def _run_preparation(request: bytes) -> str | None:
    output = b""
    async with child_process(MODULE, request) as child, asyncio.timeout(PREPARATION_SECONDS):
        while chunk := await child.output.read(1 << 16):
            output = (output + chunk)[-MAX_KEPT_BYTES:]
        status = await child.status()
    last_line = output.rstrip().rpartition(b"\n")[2].decode(errors="replace")
    if status != 0:
        return f"the process that prepares them ended with status {status}: {last_line}"
    reason = json.loads(last_line)
    return None if reason is None else str(reason)


def _open_draft(draft: Entry, judged: JudgedFile, file: ModelFile, options: FileOptions) -> CheckedFile:
    """Open a model by the files of a draft, which gets the values of the levers."""
    where, manifest = str(file.path), judged.manifest
    runtime = _open_prepared(draft, options)
    if runtime.manifest != manifest:
        raise _NotSharedError("the prepared graph has another manifest")
    biases = check_gates(runtime, manifest, judged.data, where)
    text = check_inputs(runtime, manifest, where)
    with draft.levers.open("wb") as levers:
        np.savez(levers, **biases)  # type: ignore[arg-type]
    result = probe_file(file, runtime, options)
    return CheckedFile(judged.digest, manifest, runtime, biases, text, result, mapped=True)


def _open_prepared(entry: Entry, options: FileOptions) -> Runtime:
    try:
        return open_model(
            entry.graph,
            threads=options.threads,
            call=options.call,
            arena=memory_per_worker(options.settings) is None,
            prepared=True,
        )
    except ModelFileError as error:  # another process removed it, or memory is short
        raise _NotSharedError(str(error)) from error


def _entry_name(cache: WeightsCache, digest: str) -> str:
    return entry_name(digest, runtime_settings(), cache.cpu)


def _probe_name(options: FileOptions) -> str:
    """What the result of a probe depends on, beside the entry."""
    settings = f"{options.threads} {options.settings.max_batch}"
    return hashlib.sha256(settings.encode()).hexdigest()[:16]


def _store_probe(entry: Entry, result: ProbeResult, options: FileOptions) -> None:
    record = asdict(result) | {"splittable": sorted(result.splittable)}
    try:
        entry.write_fact(_probe_name(options), record)
    except OSError as error:  # the next process probes it again
        log.debug("the result of a probe cannot be stored: %s", error)


def _stored_probe(entry: Entry, runtime: Runtime, options: FileOptions) -> ProbeResult | None:
    """The result of an earlier probe with these settings. A few rows warm up the model, as a probe does."""
    record: Any = entry.read_fact(_probe_name(options))
    try:
        result = ProbeResult(**{**record, "splittable": frozenset(record["splittable"])})
    except (TypeError, KeyError):
        return None
    next(find_rows(runtime, batch_dimension(runtime.inputs), FEW_ROWS), None)
    return result
