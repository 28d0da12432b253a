"""Generates the load: processes and locust users that send requests and check the answers.

Takes a plan and a workload; gives a ledger. May import workload, plan and ledger, but not measure or report.
"""
