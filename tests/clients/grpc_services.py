"""Use gRPC's own clients for health and reflection, and print the results as JSON.

Usage: grpc_services.py HOST:PORT MODEL
"""

import json
import sys

import grpc
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.json_format import MessageToDict, ParseDict
from google.protobuf.message_factory import GetMessageClass
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

address, model = sys.argv[1:]
channel = grpc.insecure_channel(address)


def health():
    stub = health_pb2_grpc.HealthStub(channel)

    def check(name):
        try:
            status = stub.Check(health_pb2.HealthCheckRequest(service=name)).status
        except grpc.RpcError as error:
            return error.code().name
        return health_pb2.HealthCheckResponse.ServingStatus.Name(status)

    watch = stub.Watch(health_pb2.HealthCheckRequest(service=model))
    first = health_pb2.HealthCheckResponse.ServingStatus.Name(next(watch).status)
    watch.cancel()
    return {
        "watch": first,
        **{name: check(name) for name in ("", "inference.GRPCInferenceService", model, "absent")},
    }


def reflection():
    database = ProtoReflectionDescriptorDatabase(channel)
    pool = DescriptorPool(database)
    services = {
        name: sorted(method.name for method in pool.FindServiceByName(name).methods)
        for name in database.get_services()
    }

    def call(service, method, request):
        """Call a method about which only the server's own description is known."""
        described = pool.FindMethodByName(f"{service}.{method}")
        answer = channel.unary_unary(
            f"/{service}/{method}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=GetMessageClass(described.output_type).FromString,
        )(ParseDict(request, GetMessageClass(described.input_type)()))
        return MessageToDict(answer, preserving_proto_field_name=True)

    contents = {"fp32_contents": [float(n % 17) for n in range(64)]}
    tensor = {"name": "x", "datatype": "FP32", "shape": [1, 1, 8, 8], "contents": contents}
    request = {"model_name": model, "inputs": [tensor]}
    return {
        "services": services,
        "row": contents["fp32_contents"],
        "infer": call("inference.GRPCInferenceService", "ModelInfer", request),
        "lesion": call("turnpike.v1.GateService", "Lesion", {"infer": request, "moves": {"close": ["3"]}})[
            "lesion"
        ],
    }


json.dump({"health": health(), "reflection": reflection()}, sys.stdout)
