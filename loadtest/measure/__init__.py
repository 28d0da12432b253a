"""Measures a load test: the server's metrics, the capacity search, and the record with its verdict.

Takes the ledger and the plan; gives the record that the report shows. May import workload, plan, slo and
ledger.
"""
