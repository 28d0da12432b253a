"""The OpenAPI document and the page at /docs that shows it: application in, JSON and HTML out.

Imported when the document is first requested. May import `service.http` and `service.artifact`.
"""
