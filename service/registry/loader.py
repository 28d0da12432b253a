"""Loads a model file: judges its manifest, opens it, compares the two, and probes how it may be batched.

The manifest comes first and is read from the bytes, because onnxruntime may take minutes to open a file that
was not made by an export, or crash.
"""

from __future__ import annotations

import hashlib
import itertools
import logging
import time
from collections.abc import Iterable

from turnpike.service.artifact.manifest import Manifest, expect_proved_content, read_manifest
from turnpike.service.artifact.onnx_file.constants import expect_self_contained, read_initializers
from turnpike.service.artifact.onnx_file.protobuf import content_digest
from turnpike.service.artifact.runtime import Runtime, open_model, open_runtime
from turnpike.service.artifact.sample_rows import check_sample_rows
from turnpike.service.artifact.signature import Signature, cell_columns, target_column
from turnpike.service.artifact.tensor import Tensor
from turnpike.service.artifact.text_encoder import TextEncoder
from turnpike.service.artifact.verdict_text import verdict
from turnpike.service.batching.batch_run import BatchRunner
from turnpike.service.batching.batcher import Batcher
from turnpike.service.config.memory_share import memory_per_worker
from turnpike.service.config.settings import Settings
from turnpike.service.errors import DeviceError, ModelFileError, UntriedError
from turnpike.service.gates.drift import DriftMonitor, sampled_run
from turnpike.service.inference_types import Array
from turnpike.service.low_priority import Caller, call_directly
from turnpike.service.memory.free_memory import trim_memory
from turnpike.service.registry.device_agreement import check_device_agreement
from turnpike.service.registry.hooked_runner import HookedRunner
from turnpike.service.registry.hooks import Hooks
from turnpike.service.registry.model import Model
from turnpike.service.registry.openvino_inputs import check_openvino_inputs
from turnpike.service.registry.probe import ProbeResult, probe
from turnpike.service.repository.scan import ModelFile, expect_unchanged, read_model_file
from turnpike.service.telemetry.counters import RequestCounters

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
    """
    start = time.perf_counter()
    where = str(file.path)

    # read the file, and judge its manifest
    data = call(read_model_file, file)
    manifest = read_manifest(data, where)
    if manifest is not None:
        expect_proved_content(manifest, call(content_digest, data), where)
    elif not settings.allow_unverified:
        raise ModelFileError(
            f"{where}: expected a file exported by turnpike, got one without a manifest: `turnpike export` "
            "adds one, and --allow-unverified serves the file without it",
            "it has no manifest, so nothing shows that its outputs are right",
        )
    elif not tried:
        raise UntriedError(f"{where}: expected a trial first, as it has no manifest", "it has had no trial")
    expect_self_contained(data, where)

    # Open it. onnxruntime reads it once more by itself: given bytes, it would copy them and keep the GIL
    # meanwhile.
    try:
        runtime = open_runtime(
            file.path,
            manifest,
            threads=threads,
            device=settings.device,
            precision=settings.precision,
            call=call,
            arena=memory_per_worker(settings) is None,
        )
    except DeviceError as error:
        raise ModelFileError(str(error), "its device is not available") from error
    expect_unchanged(file)

    # does the graph have what the manifest describes?
    biases = check_gates(runtime, manifest, data, where)
    expect_fitting_rows(runtime, manifest, where)
    text = text_encoder(runtime, manifest, where)

    # Probe it: what may be batched, and does the device compute what the CPU computes?
    batch = batch_dimension(runtime.inputs)
    if runtime.cpu_runtime is not None:
        check_openvino_inputs(runtime.cpu_runtime.with_caller(call), batch, where)
    result = probe(runtime.with_caller(call), batch, settings.max_batch)
    if settings.check_parity and settings.device != "cpu":
        cpu = runtime.cpu_runtime or open_model(file.path, threads=threads)
        check_device_agreement(runtime, cpu, batch, where)
    batched = may_batch(result, manifest, file, exact=settings.exact) and batch is not None
    pad_single_rows = batched and result.single_row_differs and settings.max_batch > 1

    # assemble the model
    drift = None
    if manifest is not None and manifest.profile is not None and manifest.profile.layers:
        drift = DriftMonitor(manifest.profile, manifest.gates, settings.drift_rows)
    signature = Signature(
        inputs=_by_name(runtime.inputs),
        outputs=_by_name(runtime.outputs),
        hidden=_by_name(runtime.hidden),
        batch=batch,
        splittable=result.splittable,
        features=() if manifest is None else tuple(feature.name for feature in manifest.features),
        columns=() if manifest is None else cell_columns(manifest.features),
        text=text,
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
        digest=call(hashlib.sha256, data).hexdigest(),
        bytes=len(data),
        manifest=served_manifest,
        signature=signature,
        runtime=runtime,
        biases=biases,
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
        "%s/%d: loaded %s in %.0f ms: %s, %s, SHA-256 %s",
        model.name,
        model.version,
        f"{model.bytes:,} bytes",
        1000 * (time.perf_counter() - start),
        "no manifest"
        if manifest is None
        else f"exported as {manifest.name}/{manifest.version}, {verdict(manifest)}",
        "batched" if batched else "not batched",
        model.digest,
    )
    return model


def check_gates(
    runtime: Runtime, manifest: Manifest | None, data: memoryview, where: str
) -> dict[str, Array]:
    """Return the values of the levers' tensors; raise ModelFileError if the graph lacks a gate."""
    if manifest is None:
        return {}
    hidden = {tensor.name for tensor in runtime.hidden}
    overridable = {tensor.name for tensor in runtime.levers}
    for gate in manifest.gates:
        for name in (gate.name, gate.carry_gate, gate.output):
            if name is not None and name not in hidden:
                raise _mismatch_error(where, f"{gate.name}: the graph has no hidden output {name!r}")
    biases = read_initializers(
        data, {lever.tensor for gate in manifest.gates for lever in gate.levers}, where
    )
    for gate in manifest.gates:
        for lever in gate.levers:
            if lever.tensor not in overridable:
                raise _mismatch_error(where, f"{gate.name}: the lever {lever.tensor!r} cannot be overridden")
            if not 0 <= lever.start < lever.stop <= biases[lever.tensor].size:
                raise _mismatch_error(
                    where, f"{gate.name}: the lever {lever.tensor!r} has no part {lever.start}:{lever.stop}"
                )
    return biases


def expect_fitting_rows(runtime: Runtime, manifest: Manifest | None, where: str) -> None:
    """Raise ModelFileError if the manifest has sample rows that the graph does not accept."""
    if manifest is None:
        return
    try:
        check_sample_rows(manifest, _by_name(runtime.inputs))
    except ValueError as error:
        raise _mismatch_error(where, str(error)) from error


def text_encoder(runtime: Runtime, manifest: Manifest | None, where: str) -> TextEncoder | None:
    """What converts texts to ids; raises ModelFileError if the graph does not accept such ids."""
    try:
        return TextEncoder.of(manifest, _by_name(runtime.inputs))
    except ValueError as error:
        raise _mismatch_error(where, str(error)) from error


def batch_dimension(inputs: Iterable[Tensor]) -> str | None:
    """The name of the dimension that every input has first; None if there is no such dimension."""
    first_dims = {tensor.dims[0] if tensor.dims else 0 for tensor in inputs}
    name = first_dims.pop() if len(first_dims) == 1 else 0
    return name if isinstance(name, str) else None


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


def _by_name(tensors: Iterable[Tensor]) -> dict[str, Tensor]:
    return {tensor.name: tensor for tensor in tensors}


def _mismatch_error(where: str, problem: str) -> ModelFileError:
    return ModelFileError(f"{where}: manifest: {problem}", "its manifest does not match its graph")
