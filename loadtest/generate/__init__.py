"""Generates the load: processes that send requests and check the answers, and the locust users that start them.

`coordinator` leads the processes, `worker` is one of them. There, `process_load` sends by `sender`, either for
closed-loop users or on the schedule of `open_loop`.

Takes a plan and a workload; gives a ledger. May import workload, plan and ledger, but not measure or report.
"""
