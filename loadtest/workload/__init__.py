"""The workload of a load test: the target model, the requests for it, and the check of their answers.

Takes a plan; gives payloads and an answer checker. Imports no locust, gevent or other sub-package.
"""
