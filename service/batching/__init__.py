"""Queues the requests to one model and runs them in batches: arrays in, arrays out.

Knows neither HTTP nor onnxruntime; imports only `service.errors` and `service.inference_types`.
"""
