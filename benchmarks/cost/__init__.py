"""Measures what one thing costs: a request, the batcher, requests for gates, an export."""
