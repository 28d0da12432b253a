"""Opens and runs model files. The only module of the service that imports onnxruntime."""

from __future__ import annotations

import copy
import mmap
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import onnxruntime
from onnxruntime.capi.onnxruntime_pybind11_state import Fail, InvalidArgument

from turnpike.common.distribution import install_command, needs_extra
from turnpike.service.artifact.devices import (
    OPENVINO_MODULE,
    OPENVINO_PACKAGE,
    PROVIDERS,
    Device,
    DevicePrecision,
    expect_precision,
    provider_options,
)
from turnpike.service.artifact.manifest import Manifest, read_manifest
from turnpike.service.artifact.openvino import OpenVinoRun, reduce_graph
from turnpike.service.artifact.tensor import Tensor
from turnpike.service.errors import DeviceError, ModelFileError, RunError
from turnpike.service.inference_types import Array
from turnpike.service.low_priority import Caller, call_directly
from turnpike.service.memory.thread_stacks import stack_room

# Optimizers of onnxruntime that change results: this one joins padding with zeros to a MaxPool, which pads
# with the smallest number.
WRONG_OPTIMIZERS = ["Pad_Fusion"]

# Bytes of the smallest weights that are stored beside a prepared graph. Smaller ones are in it.
MIN_EXTERNAL_BYTES = 1024

# what the errors of onnxruntime's allocators contain
NO_MEMORY = ("Failed to allocate memory", "bad_alloc")

# what onnxruntime says of an id that a table does not have
ID_OUTSIDE = re.compile(r"idx=(-?\d+) must be within the inclusive range \[(-?\d+),(-?\d+)\]")

# onnxruntime's name of a tensor type -> NumPy's name of the dtype
DTYPE_BY_ONNX_TYPE = {
    "tensor(bool)": "bool",
    "tensor(uint8)": "uint8",
    "tensor(uint16)": "uint16",
    "tensor(uint32)": "uint32",
    "tensor(uint64)": "uint64",
    "tensor(int8)": "int8",
    "tensor(int16)": "int16",
    "tensor(int32)": "int32",
    "tensor(int64)": "int64",
    "tensor(float16)": "float16",
    "tensor(float)": "float32",
    "tensor(double)": "float64",
}


# the model y = x @ [[1]] for x of shape [1, 1], which is opened to try a device
PRODUCT_MODEL = bytes.fromhex(
    "080812003a510a110a01780a017712017922064d61744d756c1201672a0f08010801100122040000803f420177"
    "5a130a0178120e0a0c080112080a0208010a02080162130a0179120e0a0c080112080a0208010a02080142040a001011"
)
# a number of 11 bits, which bf16 rounds to 1
ROUNDED_BY_BF16 = 1 + 2.0**-10

# held while the plugin is registered: onnxruntime refuses to register it twice
_plugin_lock = Lock()


def device_available(device: Device) -> bool:
    """Whether onnxruntime has the device's execution provider. For OpenVINO: whether its plugin is installed.

    The plugin is not loaded, so OpenVINO may still refuse this CPU when a model is opened.
    """
    if device == "openvino":
        return find_spec(OPENVINO_MODULE) is not None
    return PROVIDERS[device] in onnxruntime.get_available_providers()


def expect_device(device: Device, precision: DevicePrecision = "fp32") -> None:
    """Raise a DeviceError if models cannot run on this device here, in this precision."""
    try:
        open_model(PRODUCT_MODEL, device=device, precision=precision, where=f"a model that tries {device}")
    except ModelFileError as error:
        # a plugin that does not fit this onnxruntime, for example
        raise DeviceError(f"device: {error}") from error


def runtime_settings() -> dict[str, object]:
    """What a prepared graph depends on in this module: another value may give other bits."""
    return {
        "onnxruntime": onnxruntime.__version__,
        "disabled optimizers": WRONG_OPTIMIZERS,
        "external from": MIN_EXTERNAL_BYTES,
    }


@dataclass(frozen=True, slots=True)
class PreparedFiles:
    """The optimized graph of a model, and its weights as the CPU provider packs them, which can be mapped."""

    graph: Path
    # in the folder of the graph
    weights: str


class Runtime:
    """An open model.

    `inputs` must be fed. `outputs` are returned by default, `hidden` outputs (gates, for example) only when
    they are requested. `levers` are initializers that may be overridden by feeding a tensor of that name.
    `manifest` is None in a file that was not exported by turnpike.
    """

    def __init__(self, session: onnxruntime.InferenceSession, manifest: Manifest | None, where: str) -> None:
        self._session = session
        # of the device's arithmetic
        self.precision: DevicePrecision = "fp32"
        self.manifest = manifest
        self.inputs = tuple(_tensor(arg, where) for arg in session.get_inputs())
        outputs = {arg.name: _tensor(arg, where) for arg in session.get_outputs()}
        public = tuple(outputs) if self.manifest is None else self.manifest.outputs
        if absent := [name for name in public if name not in outputs]:
            raise ModelFileError(f"{where}: manifest: outputs: the graph has no output {absent[0]!r}")
        self.outputs = tuple(outputs[name] for name in public)
        self.hidden = tuple(tensor for name, tensor in outputs.items() if name not in public)
        self.levers = tuple(_tensor(arg, where) for arg in session.get_overridable_initializers())
        self.provider: str = session.get_providers()[0]
        self._public = [tensor.name for tensor in self.outputs]
        self._run: Any = session.run if self.provider == PROVIDERS["cpu"] else self._run_bound
        # on OpenVINO: the same model on the CPU provider
        self.cpu_runtime: Runtime | None = None
        # whether a caller may choose sizes other than the number of rows; an unfit size makes a run fail
        self._has_free_dims = any(isinstance(dim, str) for tensor in self.inputs for dim in tensor.dims[1:])

    @property
    def device(self) -> Device:
        """Where the model runs."""
        return next(device for device, provider in PROVIDERS.items() if provider == self.provider)

    def run(self, feeds: Mapping[str, Array], outputs: Sequence[str] | None = None) -> list[Array]:
        """The requested outputs in that order, or all public outputs if `outputs` is None."""
        names = self._public if outputs is None else outputs
        # for an empty list of names onnxruntime would compute every output
        try:
            return self._run(names, feeds if isinstance(feeds, dict) else dict(feeds)) if names else []
        except Exception as error:  # onnxruntime's own exceptions share no base
            raise RunError(
                f"onnxruntime cannot run the model on these rows ({_first_line(error)})",
                caused_by_input=isinstance(error, InvalidArgument)
                or (self._has_free_dims and isinstance(error, Fail)),
                out_of_memory=_is_out_of_memory(error),
                id_and_range=_id_and_range(str(error)),
            ) from error

    def with_caller(self, call: Caller) -> Runtime:
        """The same model, with its runs made through `call`."""
        other = copy.copy(self)
        other._run = partial(call, self._run)
        return other

    def on_openvino(
        self,
        without_gates: onnxruntime.InferenceSession,
        with_gates: onnxruntime.InferenceSession,
        precision: DevicePrecision,
    ) -> Runtime:
        """The same model, which runs in these sessions; see `OpenVinoRun`."""
        other = copy.copy(self)
        levers = [tensor.name for tensor in self.levers]
        other._run = OpenVinoRun(self._session.run, without_gates.run, with_gates.run, self._public, levers)
        other.provider = without_gates.get_providers()[0]
        other.precision = precision
        other.cpu_runtime = self
        return other

    def _run_bound(self, names: Sequence[str], feeds: dict[str, Array]) -> list[Array]:
        """Run on a device with one copy to it for each input and one copy back for each output."""
        binding = self._session.io_binding()
        for name, array in feeds.items():
            binding.bind_ortvalue_input(name, onnxruntime.OrtValue.ortvalue_from_numpy(array))
        unique = list(dict.fromkeys(names))
        for name in unique:
            binding.bind_output(name, "cpu")
        self._session.run_with_iobinding(binding)
        arrays = dict(zip(unique, binding.copy_outputs_to_cpu(), strict=True))
        return [arrays[name] for name in names]


def open_model(
    model: Path | bytes,
    *,
    threads: int = 1,
    device: Device = "cpu",
    precision: DevicePrecision = "fp32",
    where: str = "model.onnx",
    call: Caller = call_directly,
    arena: bool = True,
    prepared: bool = False,
    disabled_optimizers: Sequence[str] = (),
) -> Runtime:
    """Open a model in the way that the service does. The manifest is read before onnxruntime sees the file.

    Args:
        model: A path, or the content of a file.
        threads: Threads that share the work of one run.
        device: Where the model runs.
        precision: The precision of the device's arithmetic.
        where: Name of the model in error messages, if `model` is not a path.
        call: See `open_runtime`.
        arena: See `open_runtime`.
        prepared: See `open_runtime`.
        disabled_optimizers: See `open_runtime`.

    Raises:
        ModelFileError: There is no such file, onnxruntime cannot open it, or its manifest is invalid.
        DeviceError: The device is not available, or does not have the precision.
    """
    if isinstance(model, Path):
        where = str(model)
        if not model.is_file():
            raise ModelFileError(
                f"{where}: {'expected a file, and it is a folder' if model.is_dir() else 'no such file'}"
            )
    manifest = read_manifest(_mapped(model) if isinstance(model, Path) else model, where)
    return open_runtime(
        model,
        manifest,
        threads=threads,
        device=device,
        precision=precision,
        where=where,
        call=call,
        arena=arena,
        prepared=prepared,
        disabled_optimizers=disabled_optimizers,
    )


def open_runtime(
    model: Path | bytes,
    manifest: Manifest | None,
    *,
    threads: int = 1,
    device: Device = "cpu",
    precision: DevicePrecision = "fp32",
    where: str = "model.onnx",
    call: Caller = call_directly,
    arena: bool = True,
    prepare: PreparedFiles | None = None,
    prepared: bool = False,
    disabled_optimizers: Sequence[str] = (),
) -> Runtime:
    """Open a model whose manifest was read; see `open_model` for the other arguments and errors.

    Args:
        model: A path, or the content of a file.
        manifest: The manifest in the file, None if it has none.
        threads: Threads that share the work of one run.
        device: Where the model runs.
        precision: The precision of the device's arithmetic.
        where: Name of the model in error messages, if `model` is not a path.
        call: Used to create the session, unless that starts threads. New threads inherit the priority of
            the thread that creates them, and would keep a low one while they run requests.
        arena: Whether the model keeps the memory of its largest run for the next one. If memory is limited,
            other models and requests may need it.
        prepare: Files to write meanwhile, for the CPU provider.
        prepared: Whether `model` is the graph of such files, which is used as it is.
        disabled_optimizers: Optimizers of onnxruntime to leave out, beside those that the manifest names.
    """
    if isinstance(model, Path):
        where = str(model)
    if not device_available(device):
        raise DeviceError(
            needs_extra("device: openvino", OPENVINO_PACKAGE, "serve-openvino")
            if device == "openvino"
            else f"device: {device} needs an onnxruntime with {PROVIDERS[device]}, got one with "
            f"{', '.join(onnxruntime.get_available_providers())}: in an environment of its own, "
            f"{install_command('serve-gpu')}"
        )
    expect_precision(device, precision)
    open_session = partial(
        _open_session,
        threads=threads,
        precision=precision,
        where=where,
        call=call,
        arena=arena,
        prepare=prepare,
        prepared=prepared,
        disabled_optimizers=(*(manifest.disabled_optimizers if manifest else ()), *disabled_optimizers),
    )
    if device != "openvino":
        return Runtime(open_session(model, device), manifest, where)

    # OpenVINO needs three sessions. The first, on the CPU provider, reads the tensors, and runs lesions.
    cpu_runtime = Runtime(open_session(model, "cpu"), manifest, where)
    if precision == "bf16" and not openvino_computes_in_bf16():
        raise DeviceError("precision: expected bf16, but OpenVINO computes in fp32 on this CPU")
    hidden = [tensor.name for tensor in cpu_runtime.hidden]
    try:
        data = memoryview(model.read_bytes() if isinstance(model, Path) else model)
        with_gates = open_session(reduce_graph(data, ()), device)
        without_gates = open_session(reduce_graph(data, hidden), device) if hidden else with_gates
    except MemoryError as error:
        raise _open_error(where, error) from error
    return cpu_runtime.on_openvino(without_gates, with_gates, precision)


@cache
def openvino_computes_in_bf16() -> bool:
    """Whether OpenVINO computes in bf16 if it is asked to, found out from a product that bf16 rounds.

    The flags of the CPU do not tell: limited by its own variables, OpenVINO may compute in fp32.
    """
    session = _open_session(
        PRODUCT_MODEL,
        "openvino",
        threads=1,
        precision="bf16",
        where="a model that tries bf16",
        call=call_directly,
        arena=False,
    )
    (product,) = session.run(None, {"x": np.array([[ROUNDED_BY_BF16]], np.float32)})
    return bool(product.item() == 1)


def write_optimized(
    model: bytes, optimized: Path, disabled_optimizers: Sequence[str] = (), where: str = "model.onnx"
) -> None:
    """Write the graph that onnxruntime makes of a model to run it on the CPU, as the service runs it.

    Args:
        model: The content of a file.
        optimized: The file to write.
        disabled_optimizers: Names of optimizers to leave out, beside those of `WRONG_OPTIMIZERS`.
        where: Name of the model in error messages.

    Raises:
        ModelFileError: onnxruntime cannot open the model.
    """
    _open_session(
        model,
        "cpu",
        threads=1,
        precision="fp32",
        where=where,
        call=call_directly,
        arena=False,
        disabled_optimizers=disabled_optimizers,
        optimized=optimized,
    )


def _open_session(
    model: Path | bytes,
    device: Device,
    *,
    threads: int,
    precision: DevicePrecision,
    where: str,
    call: Caller,
    arena: bool,
    prepare: PreparedFiles | None = None,
    prepared: bool = False,
    disabled_optimizers: Sequence[str] = (),
    optimized: Path | None = None,
) -> onnxruntime.InferenceSession:
    options = session_options(threads, arena=arena)
    if optimized is not None:
        options.optimized_model_filepath = str(optimized)
    if prepare is not None:
        _write_prepared(options, prepare)
    if prepared:
        # a second time, the optimizers may find what they left the first time
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    device_options = provider_options(device, threads, precision)
    providers: list[tuple[str, dict[str, str]]] | None = None
    if device == "openvino":
        options.add_provider_for_devices([_openvino_cpu()], device_options)
    else:
        providers = [(PROVIDERS[device], device_options)]
    create_session = partial(
        onnxruntime.InferenceSession,
        str(model) if isinstance(model, Path) else model,
        options,
        providers=providers,
        # otherwise onnxruntime prints a message if the provider fails, and continues with another one
        enable_fallback=0,
        disabled_optimizers=[*WRONG_OPTIMIZERS, *disabled_optimizers],
    )
    try:
        if threads == 1 and device == "cpu":
            session = call(create_session)
        else:
            with stack_room(threads):
                session = create_session()
    except Exception as error:  # onnxruntime's own exceptions share no base
        raise _open_error(where, error) from error
    if session.get_providers()[0] != PROVIDERS[device]:
        raise DeviceError(
            f"device: expected {device}, and onnxruntime could not start {PROVIDERS[device]}: "
            "are its driver and libraries installed, in the versions that this onnxruntime needs?"
        )
    return session


def _id_and_range(message: str) -> tuple[int, int, int] | None:
    """The id that an operator did not find in its table, and the lowest and the highest one there."""
    match = ID_OUTSIDE.search(message)
    return None if match is None else (int(match[1]), int(match[2]), int(match[3]))


def _mapped(path: Path) -> memoryview:
    """The bytes of a file, of which only those that are used are read."""
    try:
        with path.open("rb") as file:
            # an empty file cannot be mapped
            is_empty = not path.stat().st_size
            return memoryview(b"" if is_empty else mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    except OSError as error:
        raise ModelFileError(
            f"{path}: expected a file that can be read ({error.strerror})", "its file cannot be read"
        ) from error


def _openvino_cpu() -> onnxruntime.OrtEpDevice:
    """The CPU as a device of OpenVINO. The first call in a process loads OpenVINO's plugin.

    Raises:
        DeviceError: onnxruntime cannot load the plugin, or the plugin does not support this CPU.
    """
    with _plugin_lock:
        _register_openvino()
    cpus = [
        device
        for device in onnxruntime.get_ep_devices()
        if device.device.type == onnxruntime.OrtHardwareDeviceType.CPU
    ]
    for cpu in cpus:
        if cpu.ep_name == PROVIDERS["openvino"]:
            return cpu
    vendors = ", ".join({cpu.device.vendor: None for cpu in cpus})
    raise DeviceError(
        f"device: expected a CPU of Intel, which {OPENVINO_PACKAGE} needs, got one of {vendors}"
    )


@cache
def _register_openvino() -> None:
    """Load OpenVINO's plugin into onnxruntime; only the first call in a process does."""
    try:
        library = import_module(OPENVINO_MODULE).get_library_path()
        onnxruntime.register_execution_provider_library("openvino", library)
    except Exception as error:  # onnxruntime's own exceptions share no base
        raise DeviceError(
            f"device: onnxruntime cannot load {OPENVINO_PACKAGE} ({_first_line(error)})"
        ) from error


def session_options(threads: int, *, arena: bool = True) -> onnxruntime.SessionOptions:
    """The options of every session that this package opens."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.enable_cpu_mem_arena = arena
    # errors are raised; onnxruntime would also warn about every lever (an input with a default)
    options.log_severity_level = 4
    # threads that spin while they wait take CPU time from the other workers
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return options


def _write_prepared(options: onnxruntime.SessionOptions, files: PreparedFiles) -> None:
    """Have a session write its optimized graph and packed weights when it is created."""
    options.optimized_model_filepath = str(files.graph)
    external = "session.optimized_model_external_initializers"
    options.add_session_config_entry(f"{external}_file_name", files.weights)
    options.add_session_config_entry(f"{external}_min_size_in_bytes", str(MIN_EXTERNAL_BYTES))
    options.add_session_config_entry("session.save_external_prepacked_constant_initializers", "1")


def _open_error(where: str, error: Exception) -> ModelFileError:
    return ModelFileError(
        f"{where}: onnxruntime cannot open it ({_first_line(error)})",
        "there is not enough memory to load it"
        if _is_out_of_memory(error)
        else "its file is damaged or not an ONNX model",
    )


def _is_out_of_memory(error: Exception) -> bool:
    return isinstance(error, MemoryError) or any(text in str(error) for text in NO_MEMORY)


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__


def _tensor(arg: onnxruntime.NodeArg, where: str) -> Tensor:
    if arg.type not in DTYPE_BY_ONNX_TYPE:
        raise ModelFileError(
            f"{where}: {arg.name}: expected a tensor of numbers, got {arg.type}",
            "one of its inputs or outputs is not a tensor of numbers",
        )
    dims = tuple(dim if isinstance(dim, int | str) else "?" for dim in arg.shape)
    return Tensor(arg.name, DTYPE_BY_ONNX_TYPE[arg.type], dims)
