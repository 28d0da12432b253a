"""Programs of torch.export, and .pt2 files: read without their author's code, and without running any."""

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

from export.errors import ExportError, RefusedError, RequestError, SourceError
from export.input_spec import parse_inputs
from export.sources.torch_program import from_program, read_program

Files = dict[str, bytes]
PROGRAM = "models/model.json"
WEIGHTS = "data/weights/model_weights_config.json"
CONSTANTS = "data/constants/model_constants_config.json"
SAMPLES = "data/sample_inputs/model.pt"


class Net(nn.Module):
    """A parameter, a buffer and a constant; its arguments are called as fields of the file's format are."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.register_buffer("shift", torch.ones(4))
        self.constant = torch.full((4,), 2.0)

    def forward(self, device: Tensor, target: Tensor) -> dict[str, Tensor]:
        assert isinstance(self.shift, Tensor)
        return {"metadata": torch.sigmoid(self.layer(device)) * self.constant + self.shift + target}


class Trap:
    """Touches a file when it is unpickled."""

    def __init__(self, ran: Path) -> None:
        self.ran = ran

    def __reduce__(self) -> tuple[object, tuple[Path]]:
        return (Path.touch, (self.ran,))


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
    """The members of a good .pt2."""
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
    """The files with one JSON changed."""
    value = json.loads(files[name])
    edit(value)
    return {**files, name: json.dumps(value).encode()}


def pickled(trap: Trap) -> bytes:
    buffer = io.BytesIO()
    torch.save({"w": torch.ones(4), "trap": trap}, buffer)
    return buffer.getvalue()


def test_a_good_file_is_the_program(tmp_path: Path, program: ExportedProgram, files: Files) -> None:
    """Its answers, inputs and dimensions, whatever names its author gave to tensors."""
    found = read_program(zipped(tmp_path / "net.pt2", files))
    assert [str(one) for one in found.inputs] == ["device:float32[batch,4]", "target:float32[batch,4]"]
    assert (found.name, found.kind) == ("net", "program")
    assert found.program is not None
    x, y = torch.randn(5, 4), torch.randn(5, 4)
    assert torch.equal(found.program.module()(x, y)["metadata"], program.module()(x, y)["metadata"])


def test_a_file_of_torch_export_save_is_read_as_it_is(tmp_path: Path, program: ExportedProgram) -> None:
    """Not only one that was packed anew."""
    torch.export.save(program, tmp_path / "good.pt2")
    assert read_program(tmp_path / "good.pt2").program is not None


def test_the_users_names_are_taken(tmp_path: Path, files: Files) -> None:
    """Of inputs and dimensions; a number for a dimension that varies is no name."""
    path = zipped(tmp_path / "net.pt2", files)
    theirs = parse_inputs(["a:float32[rows,4]", "b:float32[rows,4]"])
    assert read_program(path, theirs).inputs == theirs
    with pytest.raises(
        RequestError, match=r"expected device:float32\[batch,4\] target:.* got a:float32\[3,4\]"
    ):
        read_program(path, parse_inputs(["a:float32[3,4]", "b:float32[3,4]"]))


def test_a_program_made_on_a_gpu_is_read_on_the_cpu(tmp_path: Path, files: Files) -> None:
    """Its weights, values and arguments."""
    on_gpu = {
        name: content.replace(b'{"type": "cpu", "index": null}', b'{"type": "cuda", "index": 0}')
        for name, content in files.items()
    }
    assert on_gpu[PROGRAM] != files[PROGRAM]
    assert on_gpu[WEIGHTS] != files[WEIGHTS]
    found = read_program(zipped(tmp_path / "net.pt2", on_gpu)).program
    assert found is not None
    assert all(tensor.device.type == "cpu" for tensor in found.state_dict.values())
    found.module()(torch.ones(2, 4), torch.ones(2, 4))


OPAQUE = ["an opaque object", "an opaque object said to be plain"]


def places_of_pickles(files: Files, trap: bytes, bare: bytes) -> dict[str, Files]:
    """A file for each place where PyTorch's own reader would unpickle."""

    def used(config: dict[str, Any]) -> None:
        next(iter(config["config"].values()))["use_pickle"] = True

    def named(prefix: str, pickled: bool = True) -> Callable[[dict[str, Any]], None]:
        def edit(config: dict[str, Any]) -> None:
            next(iter(config["config"].values())).update(use_pickle=pickled, path_name=prefix + "_0")

        return edit

    padded = bare + bytes(-len(bare) % 4)  # which looks like a tensor of whole numbers

    return {
        "a weight": {**edited(files, WEIGHTS, used), "data/weights/weight_0": trap},
        "a constant": {**edited(files, CONSTANTS, used), "data/constants/tensor_0": trap},
        "an opaque object": {
            **edited(files, CONSTANTS, named("opaque_obj")), "data/constants/opaque_obj_0": bare
        },
        "an opaque object said to be plain": {
            **edited(files, CONSTANTS, named("opaque_obj", pickled=False)),
            "data/constants/opaque_obj_0": padded,
        },
        "a custom object": {
            **edited(files, CONSTANTS, named("custom_obj")), "data/constants/custom_obj_0": trap
        },
        "weights of old": {**files, "data/weights/model.pt": trap},
        "constants of old": {**files, "data/constants/model.pt": trap},
        "sample inputs": {**files, SAMPLES: trap},
    }  # fmt: skip


@pytest.mark.parametrize(
    "place",
    ["a weight", "a constant", *OPAQUE, "weights of old", "constants of old", "sample inputs"],
)
def test_pytorch_would_have_run_the_pickle(tmp_path: Path, files: Files, place: str) -> None:
    """The traps of the next test are real: torch.export.load steps into each."""
    ran = tmp_path / "ran"
    bad = places_of_pickles(files, pickled(Trap(ran)), pickle.dumps(Trap(ran)))[place]
    try:
        torch.export.load(io.BytesIO(zipped(tmp_path / "net.pt2", bad).read_bytes()))
    except Exception:
        assert ran.exists()
    assert ran.exists()


@pytest.mark.parametrize(
    "place",
    ["a weight", "a constant", *OPAQUE, "a custom object", "weights of old", "constants of old"],
)
def test_a_pickle_is_refused_wherever_it_hides(tmp_path: Path, files: Files, place: str) -> None:
    """By the name of the member, without opening it."""
    ran = tmp_path / "ran"
    bad = places_of_pickles(files, pickled(Trap(ran)), pickle.dumps(Trap(ran)))[place]
    with pytest.raises(
        RefusedError, match=r"net.pt2: data/(weights|constants)/.* pickles are never opened: "
    ):
        read_program(zipped(tmp_path / "net.pt2", bad))
    assert not ran.exists()


def test_sample_inputs_are_never_opened(tmp_path: Path, files: Files) -> None:
    """A program needs none, so what is there does not matter."""
    ran = tmp_path / "ran"
    bad = places_of_pickles(files, pickled(Trap(ran)), b"")["sample inputs"]
    found = read_program(zipped(tmp_path / "net.pt2", bad)).program
    assert found is not None
    assert found.example_inputs is None
    assert not ran.exists()


def test_the_format_of_old_is_refused(tmp_path: Path) -> None:
    """It kept everything in pickles."""
    ran = tmp_path / "ran"
    trap = pickled(Trap(ran))
    old = {"version": b"8.2", "serialized_exported_program.json": b"{}"}
    old |= {f"serialized_{part}.pt": trap for part in ("state_dict", "constants", "example_inputs")}
    with pytest.raises(RefusedError, match="a .pt2 of before PyTorch 2.8 .* save it again"):
        read_program(zipped(tmp_path / "net.pt2", old, root=""))
    assert not ran.exists()


def test_compiled_code_is_refused(tmp_path: Path, files: Files) -> None:
    """PyTorch would load the library."""
    bad = {**files, "data/aotinductor/model/code.wrapper.so": b"\x7fELF"}
    with pytest.raises(
        RefusedError, match="data/aotinductor/model/code.wrapper.so: compiled code is never loaded"
    ):
        read_program(zipped(tmp_path / "net.pt2", bad))


def calls(target: str, path: Path) -> Callable[[Any], None]:
    """Have the program call a function with the path of a file, beside its own nodes."""
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
    """PyTorch's reader finds functions by their names in all of torch, whatever they do."""
    bad = edited(files, PROGRAM, calls(target, tmp_path / "ran"))
    with pytest.raises(RefusedError, match=r"net.pt2: models/model.json: it calls '"):
        read_program(zipped(tmp_path / "net.pt2", bad))


def test_pytorch_would_have_called_it(tmp_path: Path, files: Files) -> None:
    """The call of the last test is real: the program makes a file, without any pickle."""
    ran = tmp_path / "ran"
    bad = edited(files, PROGRAM, calls("torch.ops.aten.from_file.default", ran))
    loaded = torch.export.load(io.BytesIO(zipped(tmp_path / "net.pt2", bad).read_bytes()))
    loaded.module()(torch.ones(2, 4), torch.ones(2, 4))
    assert ran.exists()


SIZE = "__import__('pathlib').Path({!r}).touch() or Symbol('s17', integer=True)"


def sized(text: str) -> Callable[[Any], None]:
    """Write a size of the program's first input so."""

    def edit(program: Any) -> None:
        program["graph_module"]["graph"]["tensor_values"]["device"]["sizes"][0]["as_expr"]["expr_str"] = text

    return edit


def test_pytorch_would_have_evaluated_the_size(tmp_path: Path, files: Files) -> None:
    """The sizes of the next test are real Python to PyTorch's reader."""
    ran = tmp_path / "ran"
    bad = edited(files, PROGRAM, sized(SIZE.format(str(ran))))
    with pytest.raises(Exception):  # noqa: B017, PT011, it fails after it ran
        torch.export.load(io.BytesIO(zipped(tmp_path / "net.pt2", bad).read_bytes()))
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
def test_a_size_is_arithmetic_and_no_more(tmp_path: Path, files: Files, text: str) -> None:
    """PyTorch evaluates it as Python."""
    bad = edited(files, PROGRAM, sized(text.replace("{!r}", repr(str(tmp_path / "ran")))))
    with pytest.raises(RefusedError, match=r"net.pt2: models/model.json: a size is"):
        read_program(zipped(tmp_path / "net.pt2", bad))
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
    """PyTorch imports the modules of enums and factories that a file names."""

    def edit(program: Any) -> None:
        program["graph_module"]["module_call_graph"][0]["signature"][key] = text

    with pytest.raises(RefusedError, match=r"net.pt2: models/model.json: "):
        read_program(zipped(tmp_path / "net.pt2", edited(files, PROGRAM, edit)))


def test_guards_are_not_run(tmp_path: Path, files: Files) -> None:
    """They are Python too, and PyTorch would run them at the first call."""
    ran = tmp_path / "ran"
    guard = f"L['device'].size()[0] == __import__('pathlib').Path({str(ran)!r}).touch()"
    path = zipped(
        tmp_path / "net.pt2", edited(files, PROGRAM, lambda program: program.update(guards_code=[guard]))
    )
    found = read_program(path).program
    assert found is not None
    assert found._guards_code == []
    found.module()(torch.ones(2, 4), torch.ones(2, 4))
    assert not ran.exists()
    with pytest.raises(AssertionError):
        torch.export.load(io.BytesIO(path.read_bytes())).module()(torch.ones(2, 4), torch.ones(2, 4))
    assert ran.exists(), "the guard is none"


@pytest.mark.parametrize("sizes", [[1 << 40], [1 << 16, 1 << 16], [-1, 4]])
def test_a_claimed_size_is_not_allocated(tmp_path: Path, files: Files, sizes: list[int]) -> None:
    """Neither a weight's, nor a value's."""
    asked = [{"as_int": size} for size in sizes]

    def weight(config: Any) -> None:
        config["config"]["layer.weight"]["tensor_meta"]["sizes"] = asked

    def value(program: Any) -> None:
        program["graph_module"]["graph"]["tensor_values"]["sigmoid"]["sizes"] = asked

    for name, edit in ((WEIGHTS, weight), (PROGRAM, value)):
        with pytest.raises(RefusedError, match="claims more than 2.31 numbers"):
            read_program(zipped(tmp_path / "net.pt2", edited(files, name, edit)))


def test_a_tensor_that_repeats_itself_into_gigabytes_is_refused(tmp_path: Path, files: Files) -> None:
    """One number with strides of 0 could stand for any number of them."""

    def edit(config: Any) -> None:
        meta = config["config"]["layer.weight"]["tensor_meta"]
        meta["sizes"], meta["strides"] = [{"as_int": 1 << 28}, {"as_int": 4}], [{"as_int": 0}] * 2

    with pytest.raises(RefusedError, match="claim [0-9]+ numbers more than the file has bytes for"):
        read_program(zipped(tmp_path / "net.pt2", edited(files, WEIGHTS, edit)))


def test_a_compressed_archive_is_refused(tmp_path: Path, files: Files) -> None:
    """torch.export.save compresses nothing; what is compressed was made to unfold."""
    with pytest.raises(RefusedError, match="expected an archive that is not compressed"):
        read_program(zipped(tmp_path / "net.pt2", files, compression=zipfile.ZIP_DEFLATED))


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_members_of_one_name_are_refused(tmp_path: Path, files: Files) -> None:
    """Which of them is read would depend on the reader."""
    path = zipped(tmp_path / "net.pt2", files)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(f"net/{PROGRAM}", files[PROGRAM])
    with pytest.raises(RefusedError, match="members of distinct names"):
        read_program(path)


@pytest.mark.parametrize("keep", [0, 7, 1000, -1])
def test_a_cut_file_is_said(tmp_path: Path, files: Files, keep: int) -> None:
    """Wherever it ends."""
    path = zipped(tmp_path / "net.pt2", files)
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(SourceError, match="net.pt2: expected a file of torch.export.save"):
        read_program(path)


@pytest.mark.parametrize("name", [PROGRAM, WEIGHTS, CONSTANTS, "data/weights/weight_0"])
def test_a_missing_or_damaged_member_is_said(tmp_path: Path, files: Files, name: str) -> None:
    """In one line with the file."""
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
    """What else torch.export allows is said with the remedy."""
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


def test_the_batch_is_any_number_of_rows_that_the_service_runs() -> None:
    """A range that is too small is refused; a fixed number is said; a size made of another is refused."""
    net, x = nn.Linear(4, 4), torch.ones(4, 4)
    with pytest.raises(SourceError, match="takes 1 to 16 rows at a time, and the service runs 1 to 128"):
        from_program(program_of(net, x, batch=Dim("batch", min=1, max=16)), (), "net")
    with pytest.warns(UserWarning, match=r"input:float32\[4,4\]: takes batches of exactly 4 rows"):
        assert from_program(program_of(net, x, batch=False), (), "net").inputs[0].dims == (4, 4)
    even = program_of(net, x, batch=2 * Dim("half"))
    with pytest.raises(SourceError, match=r"dimension 0 is 2\*s\d+: expected a number, or"):
        from_program(even, (), "net")
