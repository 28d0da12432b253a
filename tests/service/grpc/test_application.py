"""The table of calls: levels of keys, hosts, unknown methods, and that the .proto files describe it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from tests.support.grpc_worker import GrpcWorker, grpc_worker, infer_request
from turnpike.service.grpc.application import (
    GATES,
    HEALTH,
    INFERENCE,
    MODELS,
    OLD_REFLECTION,
    REFLECTION,
)
from turnpike.service.grpc.messages.descriptors import DESCRIPTORS, POOL, message_class
from turnpike.service.requests.middleware import COMPRESSED_FROM_BYTES

# calls that need no key
OPEN = {f"/{HEALTH}/Check", f"/{HEALTH}/Watch", f"/{INFERENCE}/ServerLive", f"/{INFERENCE}/ServerReady"}
OPEN |= {f"/{service}/ServerReflectionInfo" for service in (REFLECTION, OLD_REFLECTION)}
ADMIN = {f"/{INFERENCE}/RepositoryModelLoad", f"/{INFERENCE}/RepositoryModelUnload"}
# a state of the health checks
SERVING = 1


def routes(worker: GrpcWorker) -> dict[str, str]:
    """The level of each call, by its path."""
    return {route.label: route.level for route in worker.app.grpc.router.routes}


def test_every_method_of_the_proto_files_is_served() -> None:
    """And nothing else, but for the older name of reflection."""

    async def scene() -> None:
        async with grpc_worker() as worker:
            described = {
                f"/{service.full_name}/{method.name}"
                for name in (INFERENCE, GATES, MODELS, HEALTH, REFLECTION)
                for service in [POOL.FindServiceByName(name)]
                for method in service.methods
            }
            served = {path for path in routes(worker) if not path.startswith(f"/{OLD_REFLECTION}/")}
            assert served == described

    asyncio.run(scene())


def test_the_levels_of_keys() -> None:
    """As over HTTP: health is open, changes need the admin key, all others an API key if there are any."""

    async def scene() -> None:
        async with grpc_worker() as worker:
            levels = routes(worker)
            assert {path for path, level in levels.items() if level == "open"} == OPEN
            assert {path for path, level in levels.items() if level == "admin"} == ADMIN

    asyncio.run(scene())


def test_keys_are_metadata() -> None:
    """In either of the two forms that HTTP has."""

    async def scene() -> None:
        async with grpc_worker(api_keys=("secret",), admin_key="master") as worker:

            def metadata(**pairs: str) -> Any:
                return worker.call(INFERENCE, "ServerMetadata", metadata=tuple(pairs.items()))

            assert (await metadata(authorization="Bearer secret")).name == "turnpike"
            assert (await metadata(**{"x-api-key": "secret"})).name == "turnpike"
            assert (await worker.refused(metadata()))[0] == "UNAUTHENTICATED"
            assert (await worker.refused(metadata(authorization="Bearer wrong")))[0] == "UNAUTHENTICATED"
            unload = worker.call(
                INFERENCE, "RepositoryModelUnload", model_name="m", metadata=(("x-api-key", "secret"),)
            )
            assert (await worker.refused(unload))[0] == "PERMISSION_DENIED"
            assert (await worker.call(INFERENCE, "ServerReady")).ready

    asyncio.run(scene())


def test_an_unknown_method_is_unimplemented() -> None:
    async def scene() -> None:
        async with grpc_worker() as worker:
            call = worker.channel.unary_unary("/inference.GRPCInferenceService/Absent")
            assert await worker.refused(call(b"")) == (
                "UNIMPLEMENTED",
                "/inference.GRPCInferenceService/Absent: there is no such method",
            )

    asyncio.run(scene())


def test_an_unknown_model_is_not_ready() -> None:
    """No error, which would end the loops of clients that wait for a model."""

    async def scene() -> None:
        async with grpc_worker() as worker:
            assert (await worker.call(INFERENCE, "ModelReady", name="digits-10", version="1")).ready
            for name, version in (("absent", ""), ("digits-10", "7"), ("digits-10", "newest"), ("", "")):
                assert not (await worker.call(INFERENCE, "ModelReady", name=name, version=version)).ready

    asyncio.run(scene())


def test_models_are_loaded_and_unloaded_by_either_field() -> None:
    """Triton's stubs have the name in field 2, KServe's in field 1."""
    asked: list[tuple[str, Any]] = []

    class Supervisor:
        async def ask(self, what: str, argument: Any = None) -> Any:
            asked.append((what, argument))
            return {"ok": argument != "absent", "known": False, "reason": "there is no model 'absent'"}

    async def scene() -> None:
        async with grpc_worker(Supervisor(), admin_key="master") as worker:
            key = (("authorization", "Bearer master"),)
            await worker.call(INFERENCE, "RepositoryModelLoad", model_name="a", metadata=key)
            loaded = await worker.call(INFERENCE, "RepositoryModelLoad", repository_name="b", metadata=key)
            assert (loaded.model_name, loaded.isLoaded) == ("b", True)
            # as tritonclient sends it
            harmless = {"unload_dependents": {"bool_param": False}}
            unloaded = await worker.call(
                INFERENCE, "RepositoryModelUnload", model_name="c", parameters=harmless, metadata=key
            )
            assert unloaded.isUnloaded
            absent = worker.call(INFERENCE, "RepositoryModelLoad", model_name="absent", metadata=key)
            assert await worker.refused(absent) == ("NOT_FOUND", "there is no model 'absent'")

    asyncio.run(scene())
    assert asked == [("load", "a"), ("load", "b"), ("unload", "c"), ("load", "absent")]


def test_a_model_in_the_parameters_of_a_call_is_refused() -> None:
    """As over HTTP: a client must not believe that it is served."""

    async def scene() -> None:
        async with grpc_worker(admin_key="master") as worker:
            for method, name, value in (
                ("RepositoryModelLoad", "config", {"string_param": "{}"}),
                ("RepositoryModelLoad", "file:1/model.onnx", {"bytes_param": b"onnx"}),
                ("RepositoryModelUnload", "other", {"int64_param": 1}),
            ):
                call = worker.call(
                    INFERENCE,
                    method,
                    model_name="digits-10",
                    parameters={name: value},
                    metadata=(("authorization", "Bearer master"),),
                )
                code, message = await worker.refused(call)
                assert code == "INVALID_ARGUMENT"
                assert message.startswith("parameters: expected ")
                assert f"got '{name}'" in message

    asyncio.run(scene())


def test_a_call_for_another_host_is_refused() -> None:
    """As over HTTP, the authority must be one that the service answers for."""

    async def scene() -> None:
        async with grpc_worker(allowed_hosts=("example.org",)) as worker:
            code, message = await worker.refused(worker.call(INFERENCE, "ServerMetadata"))
            assert code == "FAILED_PRECONDITION"
            assert message.startswith("Host: expected example.org (--allowed-hosts), got '127.0.0.1'")
            # as over HTTP, the state of a model is not that of the server
            code, _ = await worker.refused(worker.call(INFERENCE, "ModelReady", name="digits-10"))
            assert code == "FAILED_PRECONDITION"

    asyncio.run(scene())


def test_probes_are_answered_for_any_host() -> None:
    """The probes of Kubernetes send the address of the pod as the authority, here 127.0.0.1."""

    async def scene() -> None:
        async with grpc_worker(allowed_hosts=("example.org",)) as worker:
            assert (await worker.call(HEALTH, "Check")).status == SERVING
            assert (await worker.call(HEALTH, "Check", service="digits-10")).status == SERVING
            watch = worker.method(HEALTH, "Watch")(message_class("grpc.health.v1.HealthCheckRequest")())
            assert (await watch.read()).status == SERVING
            watch.cancel()
            assert (await worker.call(INFERENCE, "ServerLive")).live
            assert (await worker.call(INFERENCE, "ServerReady")).ready

    asyncio.run(scene())


def test_the_compiled_files_are_up_to_date(tmp_path: Path) -> None:
    """`make protos` has been called after the last change."""
    folder = DESCRIPTORS.parent
    command = [sys.executable, "-m", "grpc_tools.protoc", "--include_imports", f"--proto_path={folder}"]
    compiled = tmp_path / "services.binpb"
    files = sorted(map(str, folder.glob("*.proto")))
    subprocess.run([*command, f"--descriptor_set_out={compiled}", *files], check=True)
    assert compiled.read_bytes() == DESCRIPTORS.read_bytes()


def test_large_answers_are_never_compressed_as_over_http() -> None:
    """A proxy may add Accept-Encoding to calls. A message that HTTP compressed would be damaged."""

    async def scene() -> None:
        async with grpc_worker() as worker:
            rows = np.zeros((512, 1, 8, 8), np.float32)
            infer = worker.method(INFERENCE, "ModelInfer")
            answer = await infer(infer_request(rows), metadata=(("accept-encoding", "gzip"),), timeout=20)
            (raw,) = answer.raw_output_contents
            assert len(raw) > COMPRESSED_FROM_BYTES
            assert len(set(np.frombuffer(raw, np.float32).reshape(512, 10)[:, 0])) == 1

    asyncio.run(scene())
