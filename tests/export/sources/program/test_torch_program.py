"""Programs of torch.export and .pt2 files are read without their author's code, and without running any."""

from __future__ import annotations

import io
import json
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from tests.support.pickle_trap import PickleTrap
from turnpike.export.errors import ExportError, RefusedError, SourceError, UsageError
from turnpike.export.input_spec import parse_inputs
from turnpike.export.sources.program.torch_program import from_program, read_program

Files = dict[str, bytes]
PROGRAM = "models/model.json"
WEIGHTS = "data/weights/model_weights_config.json"
CONSTANTS = "data/constants/model_constants_config.json"
SAMPLES = "data/sample_inputs/model.pt"


class Net(nn.Module):
    """A parameter, a buffer and a constant; its arguments have the names of fields of the file format."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.register_buffer("shift", torch.ones(4))
        self.constant = torch.full((4,), 2.0)

    def forward(self, device: Tensor, target: Tensor) -> dict[str, Tensor]:
        assert isinstance(self.shift, Tensor)
        return {"metadata": torch.sigmoid(self.layer(device)) * self.constant + self.shift + target}


def program_of(net: nn.Module, *args: Tensor, batch: Any = None, **kwargs: Any) -> ExportedProgram:
    dim = Dim("batch") if batch is None else batch
    shapes = tuple({0: dim} for _ in args) if batch is not False else None
    return torch.export.export(net, args, kwargs, dynamic_shapes=shapes, strict=False)


@pytest.fixture(scope="module")
def program() -> ExportedProgram:
    torch.manual_seed(0)
    return program_of(Net(), torch.ones(3, 4), torch.ones(3, 4))


@pytest.fixture(scope="module")
def files(program: ExportedProgram) -> Files:
    """The members of a valid .pt2 archive."""
    buffer = io.BytesIO()
    torch.export.save(program, buffer)
    with zipfile.ZipFile(buffer) as archive:
        return {name.partition("/")[2]: archive.read(name) for name in archive.namelist()}


def zipped(path: Path, files: Files, root: str = "net/", compression: int = zipfile.ZIP_STORED) -> Path:
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, content in files.items():
            archive.writestr(root + name, content)
    return path


def edited(files: Files, name: str, edit: Callable[[Any], None]) -> Files:
    """The members with one JSON file changed."""
    value = json.loads(files[name])
    edit(value)
    return {**files, name: json.dumps(value).encode()}


def pickled(trap: PickleTrap) -> bytes:
    buffer = io.BytesIO()
    torch.save({"w": torch.ones(4), "trap": trap}, buffer)
    return buffer.getvalue()


def test_a_valid_file_gives_the_program(tmp_path: Path, program: ExportedProgram, files: Files) -> None:
    """The program has outputs, inputs and dimensions, whatever names its tensors have."""
    source = read_program(zipped(tmp_path / "net.pt2", files))
    assert [str(spec) for spec in source.inputs] == ["device:float32[batch,4]", "target:float32[batch,4]"]
    assert (source.name, source.kind) == ("net", "program")
    assert source.program is not None
    x, y = torch.randn(5, 4), torch.randn(5, 4)
    assert torch.equal(source.program.module()(x, y)["metadata"], program.module()(x, y)["metadata"])


def test_a_file_of_torch_export_save_is_read(tmp_path: Path, program: ExportedProgram) -> None:
    """The other tests repack its members."""
    torch.export.save(program, tmp_path / "net.pt2")
    assert read_program(tmp_path / "net.pt2").program is not None


def test_inputs_get_the_names_of_the_user(tmp_path: Path, files: Files) -> None:
    """A dynamic dimension cannot become a number."""
    path = zipped(tmp_path / "net.pt2", files)
    renamed = parse_inputs(["a:float32[rows,4]", "b:float32[rows,4]"])
    assert read_program(path, renamed).inputs == renamed
    with pytest.raises(
        UsageError, match=r"expected device:float32\[batch,4\] target:.* got a:float32\[3,4\]"
    ):
        read_program(path, parse_inputs(["a:float32[3,4]", "b:float32[3,4]"]))


def test_a_program_saved_on_a_gpu_is_read_on_the_cpu(tmp_path: Path, files: Files) -> None:
    """Weights, values and arguments."""
    on_gpu = {
        name: content.replace(b'{"type": "cpu", "index": null}', b'{"type": "cuda", "index": 0}')
        for name, content in files.items()
    }
    assert on_gpu[PROGRAM] != files[PROGRAM]
    assert on_gpu[WEIGHTS] != files[WEIGHTS]
    source = read_program(zipped(tmp_path / "net.pt2", on_gpu)).program
    assert source is not None
    assert all(tensor.device.type == "cpu" for tensor in source.state_dict.values())
    source.module()(torch.ones(2, 4), torch.ones(2, 4))


OPAQUE = ["an opaque object", "an opaque object declared as plain"]


def archives_with_pickles(files: Files, trap: bytes, bare: bytes) -> dict[str, Files]:
    """An archive for each place in which PyTorch's own reader would unpickle."""

    def used(config: dict[str, Any]) -> None:
        next(iter(config["config"].values()))["use_pickle"] = True

    def named(prefix: str, pickled: bool = True) -> Callable[[dict[str, Any]], None]:
        def edit(config: dict[str, Any]) -> None:
            next(iter(config["config"].values())).update(use_pickle=pickled, path_name=prefix + "_0")

        return edit

    padded = bare + bytes(-len(bare) % 4)  # a length that could be that of a tensor

    return {
        "a weight": {**edited(files, WEIGHTS, used), "data/weights/weight_0": trap},
        "a constant": {**edited(files, CONSTANTS, used), "data/constants/tensor_0": trap},
        "an opaque object": {
            **edited(files, CONSTANTS, named("opaque_obj")), "data/constants/opaque_obj_0": bare
        },
        "an opaque object declared as plain": {
            **edited(files, CONSTANTS, named("opaque_obj", pickled=False)),
            "data/constants/opaque_obj_0": padded,
        },
        "a custom object": {
            **edited(files, CONSTANTS, named("custom_obj")), "data/constants/custom_obj_0": trap
        },
        "old weights": {**files, "data/weights/model.pt": trap},
        "old constants": {**files, "data/constants/model.pt": trap},
        "sample inputs": {**files, SAMPLES: trap},
    }  # fmt: skip


@pytest.mark.parametrize(
    "place",
    ["a weight", "a constant", *OPAQUE, "old weights", "old constants", "sample inputs"],
)
def test_pytorch_would_have_run_the_pickle(tmp_path: Path, files: Files, place: str) -> None:
    """Shows that the pickles of the next test are dangerous: torch.export.load runs each."""
    ran = tmp_path / "ran"
    archive = archives_with_pickles(files, pickled(PickleTrap(ran)), pickle.dumps(PickleTrap(ran)))[place]
    try:
        torch.export.load(io.BytesIO(zipped(tmp_path / "net.pt2", archive).read_bytes()))
    except Exception:
        assert ran.exists()
    assert ran.exists()


@pytest.mark.parametrize(
    "place",
    ["a weight", "a constant", *OPAQUE, "a custom object", "old weights", "old constants"],
)
def test_pickles_are_rejected_in_every_place(tmp_path: Path, files: Files, place: str) -> None:
    """The message names the member, which is not opened."""
    ran = tmp_path / "ran"
    archive = archives_with_pickles(files, pickled(PickleTrap(ran)), pickle.dumps(PickleTrap(ran)))[place]
    with pytest.raises(
        RefusedError, match=r"net.pt2: data/(weights|constants)/.* pickles are never opened: "
    ):
        read_program(zipped(tmp_path / "net.pt2", archive))
    assert not ran.exists()


def test_sample_inputs_are_never_opened(tmp_path: Path, files: Files) -> None:
    """A program does not need them."""
    ran = tmp_path / "ran"
    archive = archives_with_pickles(files, pickled(PickleTrap(ran)), b"")["sample inputs"]
    source = read_program(zipped(tmp_path / "net.pt2", archive)).program
    assert source is not None
    assert source.example_inputs is None
    assert not ran.exists()


def test_the_format_before_pytorch_2_8_is_rejected(tmp_path: Path) -> None:
    """It stored everything in pickles."""
    ran = tmp_path / "ran"
    trap = pickled(PickleTrap(ran))
    old = {"version": b"8.2", "serialized_exported_program.json": b"{}"}
    old |= {f"serialized_{part}.pt": trap for part in ("state_dict", "constants", "example_inputs")}
    with pytest.raises(RefusedError, match="a .pt2 file from before PyTorch 2.8 .* save it again"):
        read_program(zipped(tmp_path / "net.pt2", old, root=""))
    assert not ran.exists()


def test_compiled_code_is_rejected(tmp_path: Path, files: Files) -> None:
    """PyTorch would load the library."""
    archive = {**files, "data/aotinductor/model/code.wrapper.so": b"\x7fELF"}
    with pytest.raises(
        RefusedError, match="data/aotinductor/model/code.wrapper.so: compiled code is never loaded"
    ):
        read_program(zipped(tmp_path / "net.pt2", archive))


def calls(target: str, path: Path) -> Callable[[Any], None]:
    """An edit that makes the program call a function with the path of a file."""
    arguments = {"filename": {"as_string": str(path)}, "shared": {"as_bool": True}, "size": {"as_int": 8}}

    def edit(program: Any) -> None:
        graph = program["graph_module"]["graph"]
        graph["tensor_values"]["evil"] = graph["tensor_values"]["sigmoid"]
        inputs = [{"name": name, "arg": value, "kind": 1} for name, value in arguments.items()]
        call = {
            "name": "evil",
            "target": target,
            "inputs": inputs,
            "outputs": [{"as_tensor": {"name": "evil"}}],
        }
        graph["nodes"].insert(0, {**graph["nodes"][-1], **call})

    return edit


@pytest.mark.parametrize(
    "target",
    [
        "torch.os.system",
        "torch.ops.load_library",
        "torch.hub.load",
        "torch.ops.aten.save.default",
        "torch.ops.aten.from_file.default",
        "torch.ops.aten.add.Tensor.__call__",
        "torch.ops.other.op.default",
        "torch.ops.higher_order.call_torchbind",
        "_operator.methodcaller",
        "math.factorial",
        "#extension",
        "os.system",
    ],
)
def test_only_operations_on_tensors_are_called(tmp_path: Path, files: Files, target: str) -> None:
    """PyTorch's reader looks functions up by name in all of torch, whatever they do."""
    archive = edited(files, PROGRAM, calls(target, tmp_path / "ran"))
    with pytest.raises(RefusedError, match=r"net.pt2: models/model.json: it calls '"):
        read_program(zipped(tmp_path / "net.pt2", archive))


def test_pytorch_would_have_called_the_function(tmp_path: Path, files: Files) -> None:
    """Shows that the calls of the last test are dangerous: the program creates a file, without any pickle."""
    ran = tmp_path / "ran"
    archive = edited(files, PROGRAM, calls("torch.ops.aten.from_file.default", ran))
    loaded = torch.export.load(io.BytesIO(zipped(tmp_path / "net.pt2", archive).read_bytes()))
    loaded.module()(torch.ones(2, 4), torch.ones(2, 4))
    assert ran.exists()


SIZE = "__import__('pathlib').Path({!r}).touch() or Symbol('s17', integer=True)"


def sized(text: str) -> Callable[[Any], None]:
    """An edit that replaces a size of the first input."""

    def edit(program: Any) -> None:
        program["graph_module"]["graph"]["tensor_values"]["device"]["sizes"][0]["as_expr"]["expr_str"] = text

    return edit


def test_pytorch_would_have_evaluated_the_size(tmp_path: Path, files: Files) -> None:
    """Shows that the sizes of the next test are dangerous: PyTorch's reader evaluates them as Python."""
    ran = tmp_path / "ran"
    archive = edited(files, PROGRAM, sized(SIZE.format(str(ran))))
    with pytest.raises(Exception):  # noqa: B017, PT011, it fails after it ran
        torch.export.load(io.BytesIO(zipped(tmp_path / "net.pt2", archive).read_bytes()))
    assert ran.exists()


@pytest.mark.parametrize(
    "text",
    [
        SIZE,
        "().__class__",
        "[x for x in (1,)]",
        "lambda: 1",
        "print('s0')",
        "Symbol('os.system')",
        "Symbol(*s0)",
        "(s0)(s0)",
        "9**9**9**9**9",
        "Pow(Integer(9), Pow(9, Pow(9, 9)))",
        "s0 if s1 else s2",
        "'a' 'b'",
        "(" * 500,
        "1 +",
        "s0" + " + s0" * 4000,
    ],
)
def test_a_size_may_only_be_arithmetic(tmp_path: Path, files: Files, text: str) -> None:
    archive = edited(files, PROGRAM, sized(text.replace("{!r}", repr(str(tmp_path / "ran")))))
    with pytest.raises(RefusedError, match=r"net.pt2: models/model.json: a size is"):
        read_program(zipped(tmp_path / "net.pt2", archive))
    assert not (tmp_path / "ran").exists()


def spec(kind: str, context: object) -> str:
    leaf = {"type": None, "context": None, "children_spec": []}
    return json.dumps([1, {"type": kind, "context": context, "children_spec": [leaf]}])


@pytest.mark.parametrize(
    "text",
    [
        spec("builtins.dict", json.dumps([{"__enum__": True, "fqn": "antigravity:Color", "name": "RED"}])),
        spec("collections.defaultdict", {"default_factory_module": "os", "default_factory_name": "system"}),
        spec("some.other.Type", "null"),
        spec("builtins.dict", "[" * 100_000),
        "[]",
        "[" * 100_000,
        "3",
    ],
)
@pytest.mark.parametrize("key", ["in_spec", "out_spec"])
def test_arguments_come_in_plain_containers(tmp_path: Path, files: Files, key: str, text: str) -> None:
    """PyTorch imports the modules of enums and factories that a file mentions."""

    def edit(program: Any) -> None:
        program["graph_module"]["module_call_graph"][0]["signature"][key] = text

    with pytest.raises(RefusedError, match=r"net.pt2: models/model.json: "):
        read_program(zipped(tmp_path / "net.pt2", edited(files, PROGRAM, edit)))


def test_guards_are_not_run(tmp_path: Path, files: Files) -> None:
    """They are Python, and PyTorch would run them at the first call."""
    ran = tmp_path / "ran"
    guard = f"L['device'].size()[0] == __import__('pathlib').Path({str(ran)!r}).touch()"
    path = zipped(
        tmp_path / "net.pt2", edited(files, PROGRAM, lambda program: program.update(guards_code=[guard]))
    )
    source = read_program(path).program
    assert source is not None
    assert source._guards_code == []
    source.module()(torch.ones(2, 4), torch.ones(2, 4))
    assert not ran.exists()
    with pytest.raises(AssertionError):
        torch.export.load(io.BytesIO(path.read_bytes())).module()(torch.ones(2, 4), torch.ones(2, 4))
    assert ran.exists(), "expected PyTorch to run the guard"


@pytest.mark.parametrize("sizes", [[1 << 40], [1 << 16, 1 << 16], [-1, 4]])
def test_a_claimed_size_is_not_allocated(tmp_path: Path, files: Files, sizes: list[int]) -> None:
    """This holds for weights and for other values."""
    claimed = [{"as_int": size} for size in sizes]

    def weight(config: Any) -> None:
        config["config"]["layer.weight"]["tensor_meta"]["sizes"] = claimed

    def value(program: Any) -> None:
        program["graph_module"]["graph"]["tensor_values"]["sigmoid"]["sizes"] = claimed

    for name, edit in ((WEIGHTS, weight), (PROGRAM, value)):
        with pytest.raises(RefusedError, match="claims more than 2.31 numbers"):
            read_program(zipped(tmp_path / "net.pt2", edited(files, name, edit)))


@pytest.mark.parametrize("sizes", [5, None, {"as_int": 5}])
def test_sizes_that_are_no_list_are_rejected(tmp_path: Path, files: Files, sizes: Any) -> None:
    def value(program: Any) -> None:
        program["graph_module"]["graph"]["tensor_values"]["sigmoid"]["sizes"] = sizes

    with pytest.raises(RefusedError, match="net.pt2: models/model.json: the sizes of a tensor are"):
        read_program(zipped(tmp_path / "net.pt2", edited(files, PROGRAM, value)))


def test_a_tensor_with_strides_of_zero_is_limited(tmp_path: Path, files: Files) -> None:
    """One element with strides of 0 can stand for any number of elements."""

    def edit(config: Any) -> None:
        meta = config["config"]["layer.weight"]["tensor_meta"]
        meta["sizes"], meta["strides"] = [{"as_int": 1 << 28}, {"as_int": 4}], [{"as_int": 0}] * 2

    with pytest.raises(RefusedError, match="claim [0-9]+ numbers more than the file has bytes for"):
        read_program(zipped(tmp_path / "net.pt2", edited(files, WEIGHTS, edit)))


def test_a_compressed_archive_is_rejected(tmp_path: Path, files: Files) -> None:
    """torch.export.save compresses nothing; a small archive could decompress to gigabytes."""
    with pytest.raises(RefusedError, match="expected an archive that is not compressed"):
        read_program(zipped(tmp_path / "net.pt2", files, compression=zipfile.ZIP_DEFLATED))


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_repeated_member_names_are_rejected(tmp_path: Path, files: Files) -> None:
    """Which of the members is read would depend on the reader."""
    path = zipped(tmp_path / "net.pt2", files)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(f"net/{PROGRAM}", files[PROGRAM])
    with pytest.raises(RefusedError, match="members of distinct names"):
        read_program(path)


@pytest.mark.parametrize("keep", [0, 7, 1000, -1])
def test_a_truncated_file_is_an_error(tmp_path: Path, files: Files, keep: int) -> None:
    path = zipped(tmp_path / "net.pt2", files)
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(SourceError, match="net.pt2: expected a file of torch.export.save"):
        read_program(path)


@pytest.mark.parametrize("name", [PROGRAM, WEIGHTS, CONSTANTS, "data/weights/weight_0"])
def test_a_missing_or_damaged_member_is_an_error(tmp_path: Path, files: Files, name: str) -> None:
    rest = {key: content for key, content in files.items() if key != name}
    with pytest.raises(SourceError, match="net.pt2: .*"):
        read_program(zipped(tmp_path / "net.pt2", rest))
    for content in (b"", b"{}", b"[1, 2", b"[" * 100_001):
        with pytest.raises(ExportError, match="net.pt2"):
            read_program(zipped(tmp_path / "net.pt2", {**files, name: content}))


class Keyword(nn.Module):
    def forward(self, x: Tensor, *, mask: Tensor) -> Tensor:
        return x * mask


class Listed(nn.Module):
    def forward(self, xs: list[Tensor]) -> Tensor:
        return xs[0] + xs[1]


class Constant(nn.Module):
    def forward(self, x: Tensor, times: int) -> Tensor:
        return x * times


def test_programs_take_tensors_by_position() -> None:
    """Other arguments, which torch.export allows, are rejected with a remedy."""
    x = torch.ones(3, 4)
    shapes = {"x": {0: Dim("b")}, "mask": {0: Dim("b")}}
    keyword = torch.export.export(Keyword(), (x,), {"mask": x}, dynamic_shapes=shapes, strict=False)
    with pytest.raises(SourceError, match="keyword arguments: export it with all arguments by position"):
        from_program(keyword, (), "net")
    listed = torch.export.export(Listed(), ([x, x],), strict=False)
    with pytest.raises(SourceError, match="tensors inside of lists or dictionaries"):
        from_program(listed, (), "net")
    constant = torch.export.export(Constant(), (x, 3), strict=False)
    with pytest.raises(SourceError, match="which is no tensor: export it without this argument"):
        from_program(constant, (), "net")


def test_the_batch_must_allow_every_batch_size_of_the_service() -> None:
    """A range that is too small is rejected, as is a computed size; a fixed number causes a warning."""
    net, x = nn.Linear(4, 4), torch.ones(4, 4)
    with pytest.raises(SourceError, match="takes 1 to 16 rows at a time, and the service runs 1 to 128"):
        from_program(program_of(net, x, batch=Dim("batch", min=1, max=16)), (), "net")
    network = from_program(program_of(net, x, batch=False), (), "net")
    assert network.inputs[0].dims == (4, 4)
    (warning,) = network.messages.warnings
    assert warning == "the program: input:float32[4,4]: takes batches of exactly 4 rows"
    even = program_of(net, x, batch=2 * Dim("half"))
    with pytest.raises(SourceError, match=r"dimension 0 is 2\*s\d+: expected a number, or"):
        from_program(even, (), "net")
