"""Generates the load: processes that send requests and check the answers, and the users that locust starts.

`coordinator` leads the processes, and `worker` is one of them. Each has a `ProcessLoad`: users of a closed
loop, or the schedule of an open loop, that send over the connections of a `Sender`.

Takes a plan and a workload; gives a ledger. May import workload, plan and ledger, but not measure or report.
"""
