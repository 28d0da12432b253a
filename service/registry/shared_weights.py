"""Opens a model by its prepared weights, so that all workers of a machine map the same memory.

The first process that loads a file prepares it: onnxruntime writes its optimized graph and packed weights,
and both forms must have the same tensors and give the same bits before the files are used. The others
find the files by the model's digest. They neither read the model nor probe it again.
"""

from __future__ import annotations

import hashlib
import logging
import time
from dataclasses import asdict
from typing import Any

import numpy as np

from turnpike.service.artifact.manifest import Manifest, read_manifest
from turnpike.service.artifact.runtime import PreparedFiles, Runtime, open_runtime, runtime_settings
from turnpike.service.config.memory_share import memory_per_worker
from turnpike.service.errors import ModelFileError, RunError
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
    open_judged,
    probe_file,
)
from turnpike.service.registry.probe import FEW_ROWS, ProbeResult, Rows, find_rows
from turnpike.service.repository.scan import ModelFile, expect_unchanged
from turnpike.service.weights.cache import ModelSlot, WeightsCache
from turnpike.service.weights.entry import WEIGHTS, Entry
from turnpike.service.weights.preparation import entry_name

log = logging.getLogger(__name__)

# rows of the runs in which both forms of a model must give the same bits: kernels change at small sizes
COMPARED_ROWS = (1, 2, 7)


class _UnfitError(Exception):
    """The prepared form of a model is not what the model is."""


def open_shared(cache: WeightsCache, file: ModelFile, options: FileOptions) -> CheckedFile | None:
    """Open a file by its prepared weights, which are made if there are none.

    None if the cache cannot be used for this file. A ModelFileError says why the file may not be served.
    """
    if file.size < cache.min_model_bytes:
        return None
    try:
        expect_unchanged(file)
        with cache.slot(file.path) as slot:
            if slot is None:
                log.warning(
                    "%s/%d: weights are not shared: another process is still loading them",
                    file.name,
                    file.version,
                )
                return None
            opened = _open_in_slot(cache, slot, file, options)
    except OSError as error:
        log.warning("%s/%d: weights are not shared: %s", file.name, file.version, error)
        return None
    return opened if isinstance(opened, CheckedFile) else check_judged(file, opened, options)


def _open_in_slot(
    cache: WeightsCache, slot: ModelSlot, file: ModelFile, options: FileOptions
) -> CheckedFile | JudgedFile:
    """The file by its prepared weights. If it cannot be prepared, its content, to be opened without them."""
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
            checked = _prepare(draft, file, judged, options)
            entry = cache.publish(draft, name)
        except (_UnfitError, RunError) as error:
            log.warning("%s/%d: weights are not shared: %s", file.name, file.version, error)
            return judged
        _store_probe(entry, checked.result, options)
        log.info(
            "%s/%d: prepared its weights for other processes in %.0f ms",
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
    try:
        manifest = read_manifest(entry.graph.read_bytes(), where)
        runtime = _open_prepared(entry, manifest, options)
        with np.load(entry.levers, allow_pickle=False) as levers:
            biases = dict(levers)
        entry.touch()
    except (OSError, ValueError, ModelFileError) as error:
        # another process removed it, for example
        log.warning("%s/%d: its prepared weights cannot be opened: %s", file.name, file.version, error)
        cache.remove(name)
        return None
    expect_servable(manifest, options, where)
    text = check_inputs(runtime, manifest, where)
    result = _stored_probe(entry, runtime, options)
    if result is None:
        result = probe_file(file, runtime, options)
        _store_probe(entry, result, options)
    return CheckedFile(digest, manifest, runtime, biases, text, result, mapped=True)


def _prepare(draft: Entry, file: ModelFile, judged: JudgedFile, options: FileOptions) -> CheckedFile:
    """Write the files of a draft, and open the model by them.

    Raises:
        _UnfitError: They are not the same model, or cannot be written.
        ModelFileError: The model may not be served.
    """
    where, manifest = str(file.path), judged.manifest
    try:
        original = open_judged(file, judged, options, PreparedFiles(draft.graph, WEIGHTS))
    except ModelFileError as error:
        raise _UnfitError(f"they cannot be prepared: {error}") from error
    biases = check_gates(original, manifest, judged.data, where)
    text = check_inputs(original, manifest, where)
    with draft.levers.open("wb") as levers:
        np.savez(levers, **biases)  # type: ignore[arg-type]
    if not (draft.folder / WEIGHTS).exists():
        raise _UnfitError("the model has no large ones")
    try:
        mapped = _open_prepared(draft, manifest, options)
    except ModelFileError as error:
        raise _UnfitError(f"they cannot be opened: {error}") from error
    if read_manifest(draft.graph.read_bytes(), where) != manifest:
        raise _UnfitError("the prepared graph has another manifest")
    _expect_same(original, mapped)
    del original
    result = probe_file(file, mapped, options)
    return CheckedFile(judged.digest, manifest, mapped, biases, text, result, mapped=True)


def _open_prepared(entry: Entry, manifest: Manifest | None, options: FileOptions) -> Runtime:
    return open_runtime(
        entry.graph,
        manifest,
        threads=options.threads,
        call=options.call,
        arena=memory_per_worker(options.settings) is None,
        prepared=True,
    )


def _expect_same(original: Runtime, mapped: Runtime) -> None:
    """Raise an _UnfitError unless both forms of a model have the same tensors and compute the same bits."""
    for part in ("inputs", "outputs", "hidden", "levers"):
        if getattr(original, part) != getattr(mapped, part):
            raise _UnfitError(f"the prepared graph has other {part}")
    names = [tensor.name for tensor in (*original.outputs, *original.hidden)]
    batch = batch_dimension(original.inputs)
    # one more run with all levers changed
    moved = {
        tensor.name: np.ones([dim for dim in tensor.dims if isinstance(dim, int)], tensor.dtype)
        for tensor in original.levers
    }
    compared = False
    for rows in find_rows(original, batch, max(COMPARED_ROWS)):
        compared = True
        for count in COMPARED_ROWS if batch is not None else (None,):
            feeds = {name: array[:count] for name, array in rows.items()}
            _expect_same_bits(original, mapped, feeds, names)
        _expect_same_bits(original, mapped, feeds | moved, names)
    if not compared:
        raise _UnfitError("the model accepts none of the random rows on which the prepared graph is compared")


def _expect_same_bits(original: Runtime, mapped: Runtime, feeds: Rows, names: list[str]) -> None:
    pairs = zip(names, original.run(feeds, names), mapped.run(feeds, names), strict=True)
    for name, expected, actual in pairs:
        if expected.shape != actual.shape or expected.tobytes() != actual.tobytes():
            raise _UnfitError(f"{name}: the prepared graph gives other bits")


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
