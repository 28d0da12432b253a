"""Modules of users: their imports stay separate from ours, and errors are one line."""

from __future__ import annotations

import copy
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from turnpike import DenseGate
from turnpike.export.errors import RefusedError, SourceError, SourceOptionError, UsageError
from turnpike.export.input_spec import InputSpec, parse_inputs
from turnpike.export.sources.module.user_module import read_factory

INPUTS = parse_inputs(["x:float32[batch,4]"])

NET = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, size=4):
        super().__init__()
        self.layer = nn.Linear(4, size)
    def forward(self, x, scale=1.0):
        return self.layer(x) * scale

class Needy(Net):
    def __init__(self, size):
        super().__init__(size)

class Two(Net):
    def forward(self, x, y, *, loud=False):
        return x + y

class Keyword(Net):
    def forward(self, x, *, loud):
        return x

class Any(Net):
    def forward(self, *args):
        return sum(args)

def make():
    return Net().train()

net = Net()
number = 3
def other(): return [1]
def fails():
    return 1 / 0
def leaves():
    raise SystemExit("goodbye")

from os.path import join as netjoin  # of another file
"""


def write_modules(folder: Path, files: dict[str, str]) -> Path:
    """Write Python files, given by their paths without .py; returns the folder."""
    for name, text in files.items():
        path = folder / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


@pytest.fixture
def net_file(tmp_path: Path) -> Path:
    return write_modules(tmp_path, {"net": NET}) / "net.py"


@pytest.mark.parametrize("factory", ["make", "Net", "net"])
def test_a_factory_is_a_function_a_class_or_a_module(net_file: Path, factory: str) -> None:
    """The module is in eval mode, whatever mode the factory left it in."""
    source = read_factory(f"{net_file}:{factory}", INPUTS)
    assert source.module is not None
    assert not any(part.training for part in source.module.modules())
    assert source.module(torch.ones(2, 4)).shape == (2, 4)
    assert (source.name, source.kind, source.inputs) == (factory, "module", INPUTS)


def test_weights_of_the_file_are_loaded(net_file: Path, tmp_path: Path) -> None:
    tensors = {"layer.weight": torch.eye(4), "layer.bias": torch.zeros(4)}
    save_file(tensors, tmp_path / "w.safetensors")
    source = read_factory(f"{net_file}:make", INPUTS, tmp_path / "w.safetensors")
    assert source.module is not None
    assert torch.equal(source.module(torch.ones(1, 4)), torch.ones(1, 4))
    save_file({"layer.weight": torch.eye(4)}, tmp_path / "w.safetensors")
    with pytest.raises(SourceError, match="w.safetensors: expected a tensor 'layer.bias', which is missing"):
        read_factory(f"{net_file}:make", INPUTS, tmp_path / "w.safetensors")


def test_errors_of_weights_begin_with_the_option(net_file: Path, tmp_path: Path) -> None:
    """A pickle stays refused; other files are wrong values of the option."""
    torch.save(nn.Linear(4, 4), tmp_path / "net.pt")
    with pytest.raises(RefusedError, match="^--weights: .*net.pt: expected a dict of tensors"):
        read_factory(f"{net_file}:make", INPUTS, tmp_path / "net.pt")
    with pytest.raises(SourceOptionError, match="^--weights: gone.pt: no such file$"):
        read_factory(f"{net_file}:make", INPUTS, "gone.pt")


@pytest.mark.parametrize(
    ("factory", "message"),
    [
        (
            "Neet",
            "net.py: expected Net, net, Needy, leaves, Two, Any, make, other or 2 others, got 'Neet'$",
        ),
        ("number", "net.py:number: expected a function or a class, got int"),
        ("other", "net.py:other: expected a torch.nn.Module, got list"),
        ("Needy", "net.py:Needy: expected something that can be called without arguments, and it needs size"),
        ("fails", "^your factory fails failed at .*net.py:35: ZeroDivisionError: division by zero$"),
        ("leaves", "^your factory leaves failed at .*net.py:37: SystemExit: goodbye$"),
    ],
)
def test_errors_of_user_code_are_one_line_with_the_place(net_file: Path, factory: str, message: str) -> None:
    with pytest.raises(SourceError, match=message):
        read_factory(f"{net_file}:{factory}", INPUTS)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def make(:\n", "net.py:1: SyntaxError: "),
        (
            "import torch\nimport absent_library\n",
            "net.py:2: ModuleNotFoundError: No module named 'absent_lib",
        ),
        ("from inner import boom\n", "inner.py:2: ValueError: boom twice$"),
    ],
)
def test_a_file_that_does_not_load_is_one_line(tmp_path: Path, text: str, message: str) -> None:
    """The error may be in another file that the first one imports."""
    path = write_modules(tmp_path, {"net": text, "inner": "\nraise ValueError('boom\\ntwice')\n"}) / "net.py"
    with pytest.raises(SourceError, match=message):
        read_factory(f"{path}:make", INPUTS)
    assert getattr(sys.modules.get("net"), "__file__", "") != str(path)


def test_ctrl_c_in_user_code_stops_the_command(tmp_path: Path) -> None:
    path = write_modules(tmp_path, {"net": "raise KeyboardInterrupt"}) / "net.py"
    with pytest.raises(KeyboardInterrupt):
        read_factory(f"{path}:make", INPUTS)


@pytest.mark.parametrize(
    ("factory", "inputs", "message"),
    [
        ("make", [], r"expected one for each argument of forward\(x, scale=1.0\), as in --input x:float32"),
        ("Two", [], "as in --input x:.* --input y:"),
        ("make", ["x:float32[b,4]"] * 3, "expected 1 to 2, one for each .*, got 3"),
        (
            "Two",
            ["x:float32[b,4]"],
            r"expected 2, one for each argument of forward\(x, y, \*, loud=False\), got",
        ),
        ("Keyword", ["x:float32[b,4]"], "cannot be called without the keyword 'loud'"),
    ],
)
def test_inputs_must_match_the_arguments_of_forward(
    net_file: Path, factory: str, inputs: list[str], message: str
) -> None:
    specs = tuple(InputSpec(f"x{number}", "float32", ("b", 4)) for number in range(len(inputs)))
    with pytest.raises(UsageError, match=message):
        read_factory(f"{net_file}:{factory}", specs)


def test_any_number_of_arguments_is_any_number_of_inputs(net_file: Path) -> None:
    three = parse_inputs([f"x{number}:float32[b,4]" for number in range(3)])
    assert read_factory(f"{net_file}:Any", three).inputs == three


@pytest.mark.parametrize("text", ["net.py", "net.py:", "net.py:a.b", "net.py:a b"])
def test_other_forms_of_the_source_are_errors(text: str) -> None:
    with pytest.raises(UsageError, match="expected path/to/file.py:factory"):
        read_factory(text, INPUTS)


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="absent.py: no such file"):
        read_factory(f"{tmp_path / 'absent.py'}:make", INPUTS)


# a network whose modules have the names of this project's packages
CLASHING_MODULES = {
    "net": "import service.act\nfrom models import Net\ndef make(): return Net()\n",
    "models": (
        "import torch\n"
        "from torch import nn\n"
        "class Net(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.layer = nn.Linear(4, 4)\n"
        "    def forward(self, x):\n"
        "        import export\n"  # no other code has imported it before
        "        import models\n"
        "        assert isinstance(self, models.Net)\n"  # fails if the module was loaded a second time
        "        from service.act import act\n"
        "        import service.late\n"
        "        return act(self.layer(x)) * export.FACTOR + service.late.SHIFT\n"
    ),
    "export": "FACTOR = 2.0\n",
    "service/__init__": "",
    "service/act": "import torch\nact = torch.sigmoid\n",
    "service/late": "SHIFT = 0.5\n",
}


def test_user_modules_may_have_the_names_of_our_packages(tmp_path: Path) -> None:
    """This includes later imports in forward, in a copy, and under torch.export. Ours stay as before."""
    path = write_modules(tmp_path, CLASHING_MODULES) / "net.py"
    our_modules = {name: module for name, module in sys.modules.items() if name.startswith("turnpike")}
    before = sys.path[:]
    module = read_factory(f"{path}:make", INPUTS).module
    assert module is not None
    x = torch.ones(2, 4)
    expected = torch.sigmoid(module.layer(x)) * 2 + 0.5  # type: ignore[operator]
    assert torch.equal(module(x), expected)
    assert torch.equal(copy.deepcopy(module)(x), expected)
    assert torch.equal(torch.export.export(module, (x,)).module()(x), expected)
    assert {name: sys.modules[name] for name in our_modules} == our_modules
    assert sys.path == before
    for name in ("export", "models", "service", "service.act", "service.late"):
        sys.modules.pop(name)


def test_two_folders_do_not_share_their_modules(tmp_path: Path) -> None:
    """Each `layers` is that of its folder, whichever was loaded first and whichever is called last."""
    loaded = []
    for factor in (1, 2):
        layers = f"import torch\nclass Net(torch.nn.Module):\n    def forward(self, x): return x * {factor}\n"
        lazy = "    def forward(self, x):\n        import layers\n        return layers.Net().forward(x)\n"
        net = f"import torch\nfrom layers import Net\nclass Lazy(torch.nn.Module):\n{lazy}"
        folder = write_modules(tmp_path / str(factor), {"net": net, "layers": layers})
        loaded += [
            (factor, read_factory(f"{folder / 'net.py'}:{name}", INPUTS).module) for name in ("Net", "Lazy")
        ]
    for factor, module in loaded:
        assert module is not None
        assert module(torch.ones(1)).item() == factor
    sys.modules.pop("layers", None)


def test_a_file_in_a_package_may_import_its_neighbours(tmp_path: Path) -> None:
    """Relative imports work."""
    write_modules(
        tmp_path,
        {
            "models/__init__": "",
            "models/parts/__init__": "",
            "models/parts/net": "from ..parts_of_net import Net\ndef make(): return Net()\n",
            "models/parts_of_net": NET,
        },
    )
    source = read_factory(f"{tmp_path}/models/parts/net.py:make", INPUTS)
    assert source.module is not None
    assert type(source.module).__module__ == "models.parts_of_net"
    for name in ("models", "models.parts", "models.parts.net", "models.parts_of_net"):
        sys.modules.pop(name)


def test_the_file_may_be_a_package_itself(tmp_path: Path) -> None:
    """Its __init__.py imports a neighbour, and is run again after it changed."""
    files = {"nets/__init__": "from .layers import Net\nmake = Net\n", "nets/layers": NET}
    spec = f"{write_modules(tmp_path, files)}/nets/__init__.py:make"
    assert isinstance(read_factory(spec, INPUTS).module, nn.Module)
    write_modules(
        tmp_path, {"nets/__init__": "from torch import nn\ndef make(): return nn.Linear(4, 4)  # changed\n"}
    )
    assert isinstance(read_factory(spec, INPUTS).module, nn.Linear)
    sys.modules.pop("nets", None)


@pytest.mark.parametrize("name", ["turnpike", "types", "my-net.v2", "torch", "pytest"])
def test_the_file_itself_may_have_any_name(tmp_path: Path, name: str) -> None:
    """The name of our module, of the standard library's, of a library's, or no name of a module at all."""
    before = sys.modules.get(name)
    (tmp_path / f"{name}.py").write_text(NET)
    module = read_factory(f"{tmp_path / name}.py:make", INPUTS).module
    assert module is not None
    assert type(module).__mro__[1].__name__ == "Net"
    assert sys.modules.get(name) is before


def test_user_code_can_import_our_layers(tmp_path: Path) -> None:
    """Also beside modules of its own that are called like our packages, and like turnpike itself."""
    modules = {
        "net": (
            "from models import SIZE\nfrom turnpike import DenseGate\ndef make(): return DenseGate(SIZE, 4)\n"
        ),
        "models": "SIZE = 4\n",
        "turnpike": "raise RuntimeError\n",
    }
    module = read_factory(f"{write_modules(tmp_path, modules) / 'net.py'}:make", INPUTS).module
    assert isinstance(module, DenseGate)
    sys.modules.pop("models")


def test_imports_from_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`python -m nets.net` works the same way, although `nets` is no package."""
    net = "from parts_of_nets.parts import Net\ndef make(): return Net()\n"
    write_modules(tmp_path, {"nets/net": net, "parts_of_nets/parts": NET})
    monkeypatch.chdir(tmp_path)
    assert isinstance(read_factory("nets/net.py:make", INPUTS).module, nn.Module)


def test_warnings_of_the_file_reach_its_author(tmp_path: Path) -> None:
    """They are not ours to hide."""
    (tmp_path / "net.py").write_text(
        "import warnings\nfrom torch import nn\n\n\ndef make():\n"
        "    warnings.warn('old code')\n    return nn.Linear(4, 4)\n"
    )
    with pytest.warns(UserWarning, match="old code"):
        read_factory(f"{tmp_path}/net.py:make", INPUTS)
