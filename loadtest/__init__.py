"""Load-test client: loads a running inference server over HTTP and checks every answer.

Imports no other package of this repository, so it works against any server of the Open Inference Protocol.
"""
