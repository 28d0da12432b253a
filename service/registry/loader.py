"""From a file in the repository to a model that answers: read, opened, held against its manifest, tried."""

from __future__ import annotations

import ctypes
import hashlib
import logging
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from service.artifact.low_priority import Caller, call_directly
from service.artifact.manifest import Manifest
from service.artifact.onnx_constants import expect_self_contained, read_initializers
from service.artifact.protobuf import content_digest
from service.artifact.runtime import Runtime, Signature, Tensor, open_model
from service.artifact.sample_rows import check_sample_rows
from service.batching.batch_run import BatchRunner, Run
from service.batching.batcher import Batcher
from service.errors import DeviceError, ModelFileError
from service.gates.drift import DriftMonitor
from service.inference_types import Array
from service.registry.model import Model
from service.registry.probe import ProbeResult, check_device_agreement, probe
from service.repository.scan import ModelFile, expect_unchanged, read_model_file
from service.telemetry.counters import RequestCounters

if TYPE_CHECKING:
    from service.config.settings import Settings

log = logging.getLogger(__name__)


def load(
    found: ModelFile, settings: Settings, meter: RequestCounters, threads: int, call: Caller = call_directly
) -> Model:
    """Open a file and find out how it may be served; a ModelFileError says why it may not be.

    What takes long is left to `call`, and the interpreter's lock is hardly held meanwhile.
    """
    began = time.perf_counter()
    where = str(found.path)
    data = call(read_model_file, found)
    expect_self_contained(data, where)
    # onnxruntime reads the file once more: of bytes it makes copies, and lets nobody else run meanwhile
    try:
        runtime = open_model(found.path, threads=threads, device=settings.device, call=call)
    except DeviceError as error:
        raise ModelFileError(str(error), "its device is not there") from error
    expect_unchanged(found)
    manifest = check_manifest(runtime, where, needed=not settings.allow_unverified)
    if manifest is not None and manifest.content != call(content_digest, data):
        raise ModelFileError(
            f"{where}: expected the graph and weights that were proved, "
            f"with digest {manifest.content[:12] or '(none)'}, got others",
            "its graph or weights are not those that were proved",
        )
    biases = check_gates(runtime, manifest, data, where)
    expect_fitting_rows(runtime, manifest, where)
    batch = batch_of(runtime.inputs)
    findings = probe(runtime.with_caller(call), batch, settings.max_batch)
    if settings.check_parity and settings.device != "cpu":
        check_device_agreement(runtime, open_model(found.path, threads=threads), batch, where)
    batched = may_batch(findings, manifest, found, exact=settings.exact) and batch is not None
    drift = None
    if manifest is not None and manifest.profile is not None and manifest.profile.layers:
        drift = DriftMonitor(manifest.profile, manifest.gates, settings.drift_rows)
    trim_memory()
    counters = meter.for_model(found.name, found.version)
    lone_rows = batched and findings.lone_rows and settings.max_batch > 1
    model = Model(
        name=found.name,
        version=found.version,
        path=found.path,
        digest=call(hashlib.sha256, data).hexdigest(),
        bytes=len(data),
        manifest=manifest,
        signature=Signature(
            inputs=_by_name(runtime.inputs),
            outputs=_by_name(runtime.outputs),
            hidden=_by_name(runtime.hidden),
            batch=batch,
            splittable=findings.splittable,
        ),
        runtime=runtime,
        biases=biases,
        distribution=findings.distribution,
        batcher=Batcher(
            BatchRunner(
                runner(runtime, drift, batch, lone_rows=lone_rows),
                inputs=[tensor.name for tensor in runtime.inputs],
                splittable=findings.splittable,
                batched=batched,
                pad_single_rows=lone_rows,
                max_rows=settings.max_batch,
            ),
            max_delay=settings.max_delay_ms / 1000,
            max_queue=settings.queue,
            on_batch=counters.count_batch,
        ),
        counters=counters,
        drift=drift,
    )
    log.info(
        "%s/%d: loaded %s in %.0f ms: %s, %s, SHA-256 %s",
        model.name,
        model.version,
        f"{model.bytes:,} bytes",
        1000 * (time.perf_counter() - began),
        "no manifest"
        if manifest is None
        else f"exported as {manifest.name}/{manifest.version}, parity passed",
        "batched" if batched else "not batched",
        model.digest,
    )
    return model


def check_manifest(runtime: Runtime, where: str, *, needed: bool) -> Manifest | None:
    """The file's manifest; a ModelFileError where one is needed and there is none."""
    if runtime.manifest is None and needed:
        raise ModelFileError(
            f"{where}: expected a manifest with a proof of parity, and there is none: turnpike export "
            "adopts the file, and --allow-unverified serves it as it is",
            "it has no manifest, so nothing proves that it answers as it should",
        )
    return runtime.manifest


def check_gates(
    runtime: Runtime, manifest: Manifest | None, data: memoryview, where: str
) -> dict[str, Array]:
    """The values of all levers; a ModelFileError where the manifest has gates that the graph has not."""
    if manifest is None:
        return {}
    hidden = {tensor.name for tensor in runtime.hidden}
    levers = {tensor.name for tensor in runtime.levers}
    for gate in manifest.gates:
        for name in (gate.name, gate.carry_gate, gate.output):
            if name is not None and name not in hidden:
                raise _unfitting(where, f"{gate.name}: the graph has no hidden output {name!r}")
    biases = read_initializers(
        data, {lever.tensor for gate in manifest.gates for lever in gate.levers}, where
    )
    for gate in manifest.gates:
        for lever in gate.levers:
            if lever.tensor not in levers:
                raise _unfitting(where, f"{gate.name}: nobody may override the lever {lever.tensor!r}")
            if not 0 <= lever.start < lever.stop <= biases[lever.tensor].size:
                raise _unfitting(
                    where, f"{gate.name}: the lever {lever.tensor!r} has no part {lever.start}:{lever.stop}"
                )
    return biases


def expect_fitting_rows(runtime: Runtime, manifest: Manifest | None, where: str) -> None:
    """Stop with a ModelFileError where the manifest brings rows that the graph does not take."""
    if manifest is None:
        return
    try:
        check_sample_rows(manifest, _by_name(runtime.inputs))
    except ValueError as error:
        raise _unfitting(where, str(error)) from error


def batch_of(inputs: Iterable[Tensor]) -> str | None:
    """The name of the dimension that leads every input, None where there is none such."""
    leading = {tensor.dims[0] if tensor.dims else 0 for tensor in inputs}
    name = leading.pop() if len(leading) == 1 else 0
    return name if isinstance(name, str) else None


def may_batch(findings: ProbeResult, manifest: Manifest | None, found: ModelFile, *, exact: bool) -> bool:
    """Whether rows of several requests may share a run; a warning says why not, where that is a surprise."""
    if manifest is not None and manifest.batch_coupled:
        return False
    if not findings.ran:
        why = "it took none of the rows that it was tried with"
    elif findings.coupled:
        why = "a row's answer depends on the rows beside it"
    elif exact and not findings.steady:
        why = "rows in company get other last bits; --no-exact batches them all the same"
    else:
        return True
    log.warning("%s/%d runs each request by itself: %s", found.name, found.version, why)
    return False


def runner(runtime: Runtime, drift: DriftMonitor | None, batch: str | None, *, lone_rows: bool) -> Run:
    """What the batcher runs: the model, and now and then its gates as well, for drift."""
    if drift is None:
        return runtime.run
    inputs, first = len(runtime.inputs), runtime.inputs[0].name

    def run(feeds: Mapping[str, Array], names: tuple[str, ...]) -> list[Array]:
        # more than the inputs are levers moved: such gates say nothing about the traffic
        if len(feeds) != inputs or not drift.should_sample():
            return runtime.run(feeds, names)
        arrays = runtime.run(feeds, (*names, *drift.gate_names))
        rows = 1 if batch is None else len(feeds[first])
        if lone_rows and rows == 2 and all(bool((fed[0] == fed[1]).all()) for fed in feeds.values()):
            rows = 1  # the other is its copy
        try:
            drift.observe(arrays[len(names) :], rows)
        except Exception:  # a caller's answer is not to fail for what is only watched
            log.exception("drift cannot be told")
        return arrays[: len(names)]

    return run


def trim_memory() -> None:
    """Return to the system what opening a file has taken and freed again: as much as its weights."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc's alone keeps it
    if trim is not None:
        trim(0)


def _by_name(tensors: Iterable[Tensor]) -> dict[str, Tensor]:
    return {tensor.name: tensor for tensor in tensors}


def _unfitting(where: str, why: str) -> ModelFileError:
    return ModelFileError(f"{where}: manifest: {why}", "its manifest is not that of its graph")
