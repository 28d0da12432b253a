"""Compares turnpike with other servers, round after round.

In: contestants of HTTP or of gRPC. Out: a results file, and its tables. Two programs compare in the same way:
turnpike with and without OpenVINO, and its load test with wrk.
"""
