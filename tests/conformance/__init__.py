"""A conformance suite of the Open Inference Protocol: requests, and what any server of the protocol answers.

It knows nothing of this service. A server needs only the models of `models.py`, which return their inputs, or
sums of them. So the suite runs against other servers too, which shows that it tests the protocol and not our
reading of it:

    python -m tests.conformance --http HOST:PORT --grpc HOST:PORT --stubs tritonclient.grpc.service_pb2
"""
