"""Call a server with the clients that are generated from the protocol's own definitions, and print JSON.

Usage: open_inference_client.py HTTP_URL GRPC_HOST:PORT MODEL
"""

import json
import sys
import warnings
from array import array

import grpc
from open_inference.grpc import protocol
from open_inference.grpc.service import GRPCInferenceServiceStub

with warnings.catch_warnings():
    # the generated classes are those of an older pydantic
    warnings.simplefilter("ignore")
    from open_inference.openapi.client import InferenceRequest, OpenInferenceClient
    from open_inference.openapi.core.api_error import ApiError

url, address, model = sys.argv[1:]
shape = [3, 1, 8, 8]
rows = array("f", [number / 12 for number in range(3 * 64)])


def over_grpc():
    stub = GRPCInferenceServiceStub(grpc.insecure_channel(address))

    def infer(name=model, **fields):
        entry = {"name": "x", "datatype": "FP32", "shape": shape, **fields.pop("entry", {})}
        return stub.ModelInfer(protocol.ModelInferRequest(model_name=name, inputs=[entry], **fields))

    def code(name):
        try:
            infer(name)
        except grpc.RpcError as error:
            return error.code().name
        return None

    raw = infer(raw_input_contents=[rows.tobytes()], id="seven")
    typed = infer(entry={"contents": {"fp32_contents": rows}}, model_version="1")
    metadata = stub.ModelMetadata(protocol.ModelMetadataRequest(name=model))
    return {
        "live": stub.ServerLive(protocol.ServerLiveRequest()).live,
        "ready": stub.ServerReady(protocol.ServerReadyRequest()).ready,
        "model_ready": stub.ModelReady(protocol.ModelReadyRequest(name=model)).ready,
        "server": stub.ServerMetadata(protocol.ServerMetadataRequest()).name,
        "inputs": [[one.name, one.datatype, list(one.shape)] for one in metadata.inputs],
        "raw": [list(raw.outputs[0].shape), array("f", raw.raw_output_contents[0]).tolist()],
        "typed": [list(typed.outputs[0].shape), list(typed.outputs[0].contents.fp32_contents)],
        "ids": [raw.id, typed.id],
        "absent": code("absent"),
        "no contents": code(model),
    }


def over_http():
    client = OpenInferenceClient(base_url=url)
    # these return nothing, and raise an error unless the answer is 200
    client.check_server_liveness()
    client.check_server_readiness()
    client.check_model_readiness(model)
    client.check_model_version_readiness(model, "1")

    def request(*dimensions):
        entry = {"name": "x", "datatype": "FP32", "shape": dimensions, "data": rows.tolist()}
        return InferenceRequest(id="seven", inputs=[entry])

    def output(answer):
        return [answer.outputs[0].shape, answer.outputs[0].data.__root__]

    def error(call):
        try:
            call()
        except ApiError as refusal:
            # the protocol defines the body of some errors, which are parsed
            message = refusal.body["error"] if isinstance(refusal.body, dict) else refusal.body.error
            return [refusal.status_code, message]
        return None

    answer = client.model_infer(model, request=request(*shape))
    of_version = client.model_version_infer(model, "1", request=request(*shape))
    return {
        "server": client.read_server_metadata().name,
        "inputs": [[one.name, one.datatype, one.shape] for one in client.read_model_metadata(model).inputs],
        "version": client.read_model_version_metadata(model, "1").versions,
        "id": answer.id,
        "infer": output(answer),
        "infer of a version": output(of_version),
        "absent": error(lambda: client.model_infer("absent", request=request(*shape))),
        "wrong shape": error(lambda: client.model_infer(model, request=request(1, 8, 8))),
    }


json.dump({"rows": rows.tolist(), "shape": shape, "grpc": over_grpc(), "http": over_http()}, sys.stdout)
