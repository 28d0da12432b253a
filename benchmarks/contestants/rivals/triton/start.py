"""Writes the files that tritonserver reads into the folder SCRATCH, and becomes tritonserver."""

from __future__ import annotations

import os
import shutil
import socket
import sys
import sysconfig
from pathlib import Path

CONFIG = """
name: "{name}"
backend: "python"
max_batch_size: 128
input [ {{ name: "x" data_type: TYPE_FP32 dims: [ {inputs} ] }} ]
output [ {{ name: "output" data_type: TYPE_FP32 dims: [ 10 ] }} ]
instance_group [ {{ count: {workers} kind: KIND_CPU }} ]
dynamic_batching {{ max_queue_delay_microseconds: 0 }}
"""


def write_files(shipped: Path, scratch: Path, name: str) -> None:
    """Write a model repository, and the backends together with the stub of this Python."""
    version = scratch / "models" / name / "1"
    version.mkdir(parents=True)
    shutil.copy(Path(__file__).with_name("model.py"), version)
    config = CONFIG.format(name=name, inputs=os.environ["INPUTS"], workers=os.environ["WORKERS"])
    (version.parent / "config.pbtxt").write_text(config)
    shutil.copytree(shipped / "backends", scratch / "backends")
    stubs = shipped / "python_backend_stubs" / "{}.{}".format(*sys.version_info)
    stub = scratch / "backends/python/triton_python_backend_stub"
    shutil.copy(stubs / stub.name, stub)
    stub.chmod(0o755)


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def main() -> None:
    packages = Path(sysconfig.get_path("purelib"))
    shipped, scratch = packages / "pytriton/tritonserver", Path(os.environ["SCRATCH"])
    write_files(shipped, scratch, os.environ["NET"])
    libraries = [*packages.glob("nvidia_pytriton.libs"), sysconfig.get_config_var("LIBDIR")]
    os.environ["LD_LIBRARY_PATH"] = ":".join(map(str, libraries))
    # the stub takes its packages from the environment of the first python3 on the PATH
    os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    program = shipped / "bin/tritonserver"
    options = [
        f"--model-repository={scratch}/models",
        f"--backend-directory={scratch}/backends",
        "--http-address=127.0.0.1",
        f"--http-port={os.environ['PORT']}",
        "--http-thread-count=4",
        "--grpc-address=127.0.0.1",
        f"--grpc-port={os.environ['GRPC_PORT']}",
        "--metrics-address=127.0.0.1",
        f"--metrics-port={free_port()}",
        "--exit-timeout-secs=2",
    ]
    os.execv(program, [str(program), *options])


if __name__ == "__main__":
    main()
