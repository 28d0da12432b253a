"""Loads a model file: opens it, decides how it may be batched, and builds what serves its requests."""

from __future__ import annotations

import itertools
import logging
import time

from turnpike.service.artifact.manifest import Manifest
from turnpike.service.artifact.signature import Signature, cell_columns, target_column
from turnpike.service.artifact.verdict_text import verdict
from turnpike.service.batching.batch_run import BatchRunner
from turnpike.service.batching.batcher import Batcher
from turnpike.service.config.settings import Settings
from turnpike.service.gates.drift import DriftMonitor, sampled_run
from turnpike.service.low_priority import Caller, call_directly
from turnpike.service.memory.free_memory import trim_memory
from turnpike.service.registry.checked_file import FileOptions, batch_dimension, by_name, check_file
from turnpike.service.registry.hooked_runner import HookedRunner
from turnpike.service.registry.hooks import Hooks
from turnpike.service.registry.model import Model
from turnpike.service.registry.probe import ProbeResult
from turnpike.service.registry.shared_weights import open_shared
from turnpike.service.repository.scan import ModelFile
from turnpike.service.telemetry.counters import RequestCounters
from turnpike.service.weights.cache import WeightsCache

log = logging.getLogger(__name__)

_serials = itertools.count(1)


def load(
    file: ModelFile,
    settings: Settings,
    counters: RequestCounters,
    threads: int,
    call: Caller = call_directly,
    *,
    tried: bool = True,
    hooks: Hooks | None = None,
    weights: WeightsCache | None = None,
) -> Model:
    """Load a model file and find out how it may be served. A ModelFileError says why it may not be served.

    Args:
        file: The file in the repository.
        settings: Device, batching, and what must be verified.
        counters: The worker's counters, among which the model gets its own.
        threads: The number of threads of one run.
        call: Makes the calls that take long and release the GIL; they may run in a thread of low priority.
        tried: False to raise an UntriedError for a file that needs a trial, as it has no manifest.
        hooks: What runs before and after the network. The checks and the probe are without it.
        weights: The cache of prepared weights, None to load the file anew.
    """
    start = time.perf_counter()
    where = str(file.path)

    # open and check it
    options = FileOptions(settings, threads, call, tried)
    checked = None if weights is None else open_shared(weights, file, options)
    if checked is None:
        checked = check_file(file, options)
    manifest, runtime, result = checked.manifest, checked.runtime, checked.result
    batch = batch_dimension(runtime.inputs)
    batched = may_batch(result, manifest, file, exact=settings.exact) and batch is not None
    pad_single_rows = batched and result.single_row_differs and settings.max_batch > 1

    # assemble the model
    drift = None
    if manifest is not None and manifest.profile is not None and manifest.profile.layers:
        drift = DriftMonitor(manifest.profile, manifest.gates, settings.drift_rows)
    signature = Signature(
        inputs=by_name(runtime.inputs),
        outputs=by_name(runtime.outputs),
        hidden=by_name(runtime.hidden),
        batch=batch,
        splittable=result.splittable,
        features=() if manifest is None else tuple(feature.name for feature in manifest.features),
        columns=() if manifest is None else cell_columns(manifest.features),
        text=checked.text,
        picture=None if manifest is None else manifest.picture,
        target=None if manifest is None else target_column(manifest.target, manifest.task),
    )
    runner = BatchRunner(
        sampled_run(runtime, drift, batch, pad_single_rows=pad_single_rows),
        inputs=signature.inputs,
        splittable=result.splittable,
        batched=batched,
        pad_single_rows=pad_single_rows,
        max_rows=settings.max_batch,
        unobserved_run=runtime.run,
    )
    served_manifest = manifest
    if hooks is not None:
        network, levers = signature, [tensor.name for tensor in runtime.levers]
        signature = hooks.signature(network, levers, where)
        served_manifest = hooks.manifest(manifest)
        runner = HookedRunner(runner, hooks, network, signature, f"{file.name}/{file.version}")
        log.info("%s/%d: runs with hooks", file.name, file.version)
    # opening a file has used as much memory as its weights take
    trim_memory()
    model_counters = counters.for_model(file.name, file.version)
    model = Model(
        name=file.name,
        version=file.version,
        path=file.path,
        serial=next(_serials),
        digest=checked.digest,
        bytes=file.size,
        manifest=served_manifest,
        signature=signature,
        runtime=runtime,
        biases=checked.biases,
        distribution=result.distribution,
        batcher=Batcher(
            runner,
            max_delay=settings.max_delay_ms / 1000,
            max_queue=settings.queue,
            on_batch=model_counters.count_batch,
        ),
        counters=model_counters,
        drift=drift,
    )
    log.info(
        "%s/%d: loaded %s in %.0f ms: %s, %s, %sSHA-256 %s",
        model.name,
        model.version,
        f"{model.bytes:,} bytes",
        1000 * (time.perf_counter() - start),
        "no manifest"
        if manifest is None
        else f"exported as {manifest.name}/{manifest.version}, {verdict(manifest)}",
        "batched" if batched else "not batched",
        "weights are shared, " if checked.mapped else "",
        model.digest,
    )
    return model


def may_batch(result: ProbeResult, manifest: Manifest | None, file: ModelFile, *, exact: bool) -> bool:
    """Whether rows of several requests may share a run; if not, a warning says why.

    Args:
        result: What the probe found.
        manifest: The file's manifest.
        file: Named in the warning.
        exact: True to allow batching only if it changes no bit of any output.
    """
    if manifest is not None and manifest.batch_coupled:
        return False
    if not result.ran:
        reason = "it accepts none of the random rows that were tried"
    elif result.coupled:
        reason = "the output of a row depends on the other rows of its batch"
    elif exact and not result.bit_stable:
        reason = "rows get other last bits in a batch than alone; --no-exact batches them all the same"
    else:
        return True
    log.warning("%s/%d runs each request by itself: %s", file.name, file.version, reason)
    return False
