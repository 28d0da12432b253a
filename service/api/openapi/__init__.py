"""The OpenAPI document and the page at /docs that shows it: routes in, JSON and HTML out.

Routes declare their operations with `operation`. May import `service.http` and `service.artifact`.
"""
