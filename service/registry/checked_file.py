"""Opens a model file that may be served: judges its manifest, compares it with the graph, and probes it.

The manifest comes first and is read from the bytes, because onnxruntime may take minutes to open a file that
was not made by an export, or crash.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

from turnpike.service.artifact.manifest import Manifest, expect_proved_content, read_manifest
from turnpike.service.artifact.onnx_file.constants import expect_self_contained, read_initializers
from turnpike.service.artifact.onnx_file.protobuf import content_digest
from turnpike.service.artifact.runtime import Runtime, open_model, open_runtime
from turnpike.service.artifact.sample_rows import check_sample_rows
from turnpike.service.artifact.tensor import Tensor
from turnpike.service.artifact.text_encoder import TextEncoder
from turnpike.service.config.memory_share import memory_per_worker
from turnpike.service.config.settings import Settings
from turnpike.service.errors import DeviceError, ModelFileError, UntriedError
from turnpike.service.inference_types import Array
from turnpike.service.low_priority import Caller
from turnpike.service.registry.device_agreement import check_device_agreement
from turnpike.service.registry.openvino_inputs import check_openvino_inputs
from turnpike.service.registry.probe import ProbeResult, probe
from turnpike.service.repository.scan import ModelFile, expect_unchanged, read_model_file


@dataclass(frozen=True, slots=True)
class FileOptions:
    """How files are opened, in one worker.

    Attributes:
        settings: Device, batching, and what must be verified.
        threads: The number of threads of one run.
        call: Makes the calls that take long and release the GIL; they may run in a thread of low priority.
        tried: False to raise an UntriedError for a file that needs a trial, as it has no manifest.
    """

    settings: Settings
    threads: int
    call: Caller
    tried: bool


@dataclass(frozen=True, slots=True)
class JudgedFile:
    """The content of a file that may be opened."""

    data: memoryview
    manifest: Manifest | None
    digest: str


@dataclass(frozen=True, slots=True)
class CheckedFile:
    """A file that may be served.

    Attributes:
        digest: SHA-256 of the file.
        manifest: Its manifest, None if it has none.
        runtime: The open model.
        biases: The values of the tensors that levers override.
        text: What converts texts to ids, None if no input has text.
        result: What the probe found out.
        mapped: Whether other processes share its weights.
    """

    digest: str
    manifest: Manifest | None
    runtime: Runtime
    biases: dict[str, Array]
    text: TextEncoder | None
    result: ProbeResult
    mapped: bool = False


def check_file(file: ModelFile, options: FileOptions) -> CheckedFile:
    """Open a file. A ModelFileError says why it may not be served."""
    return check_judged(file, judge_file(file, options), options)


def check_judged(file: ModelFile, judged: JudgedFile, options: FileOptions) -> CheckedFile:
    """Open a file whose manifest was judged, and check the rest of it."""
    runtime = open_judged(file, judged, options)
    where, manifest = str(file.path), judged.manifest
    return CheckedFile(
        judged.digest,
        manifest,
        runtime,
        check_gates(runtime, manifest, judged.data, where),
        check_inputs(runtime, manifest, where),
        probe_file(file, runtime, options),
    )


def judge_file(file: ModelFile, options: FileOptions) -> JudgedFile:
    """Read a file, and judge its manifest."""
    where, call = str(file.path), options.call
    data = call(read_model_file, file)
    manifest = read_manifest(data, where)
    if manifest is not None:
        expect_proved_content(manifest, call(content_digest, data), where)
    expect_servable(manifest, options, where)
    expect_self_contained(data, where)
    return JudgedFile(data, manifest, call(hashlib.sha256, data).hexdigest())


def expect_servable(manifest: Manifest | None, options: FileOptions, where: str) -> None:
    """Raise a ModelFileError for a file without a manifest, unless the settings allow it and it was tried."""
    if manifest is not None:
        return
    if not options.settings.allow_unverified:
        raise ModelFileError(
            f"{where}: expected a file exported by turnpike, got one without a manifest: `turnpike export` "
            "adds one, and --allow-unverified serves the file without it",
            "it has no manifest, so nothing shows that its outputs are right",
        )
    if not options.tried:
        raise UntriedError(f"{where}: expected a trial first, as it has no manifest", "it has had no trial")


def open_judged(file: ModelFile, judged: JudgedFile, options: FileOptions) -> Runtime:
    """Open a file whose manifest was judged.

    onnxruntime reads it once more by itself: given bytes, it would copy them and keep the GIL meanwhile.
    """
    settings = options.settings
    try:
        runtime = open_runtime(
            file.path,
            judged.manifest,
            threads=options.threads,
            device=settings.device,
            precision=settings.precision,
            call=options.call,
            arena=memory_per_worker(settings) is None,
        )
    except DeviceError as error:
        raise ModelFileError(str(error), "its device is not available") from error
    expect_unchanged(file)
    return runtime


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
                raise mismatch_error(where, f"{gate.name}: the graph has no hidden output {name!r}")
    biases = read_initializers(
        data, {lever.tensor for gate in manifest.gates for lever in gate.levers}, where
    )
    for gate in manifest.gates:
        for lever in gate.levers:
            if lever.tensor not in overridable:
                raise mismatch_error(where, f"{gate.name}: the lever {lever.tensor!r} cannot be overridden")
            if not 0 <= lever.start < lever.stop <= biases[lever.tensor].size:
                raise mismatch_error(
                    where, f"{gate.name}: the lever {lever.tensor!r} has no part {lever.start}:{lever.stop}"
                )
    return biases


def check_inputs(runtime: Runtime, manifest: Manifest | None, where: str) -> TextEncoder | None:
    """Return what converts texts to ids; raise ModelFileError if the graph refuses these or sample rows."""
    inputs = by_name(runtime.inputs)
    try:
        if manifest is not None:
            check_sample_rows(manifest, inputs)
        return TextEncoder.of(manifest, inputs)
    except ValueError as error:
        raise mismatch_error(where, str(error)) from error


def probe_file(file: ModelFile, runtime: Runtime, options: FileOptions) -> ProbeResult:
    """Find out what may be batched, and whether the device computes what the CPU computes."""
    where, settings = str(file.path), options.settings
    batch = batch_dimension(runtime.inputs)
    if runtime.cpu_runtime is not None:
        check_openvino_inputs(runtime.cpu_runtime.with_caller(options.call), batch, where)
    result = probe(runtime.with_caller(options.call), batch, settings.max_batch)
    if settings.check_parity and settings.device != "cpu":
        cpu = runtime.cpu_runtime or open_model(file.path, threads=options.threads)
        check_device_agreement(runtime, cpu, batch, where)
    return result


def batch_dimension(inputs: Iterable[Tensor]) -> str | None:
    """The name of the dimension that every input has first; None if there is no such dimension."""
    first_dims = {tensor.dims[0] if tensor.dims else 0 for tensor in inputs}
    name = first_dims.pop() if len(first_dims) == 1 else 0
    return name if isinstance(name, str) else None


def by_name(tensors: Iterable[Tensor]) -> dict[str, Tensor]:
    """The tensors by their names."""
    return {tensor.name: tensor for tensor in tensors}


def mismatch_error(where: str, problem: str) -> ModelFileError:
    """The error for a file whose manifest does not match its graph."""
    return ModelFileError(f"{where}: manifest: {problem}", "its manifest does not match its graph")
