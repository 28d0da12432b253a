"""Highway networks in PyTorch: every system of the family, and the loop that trains them.

Knows PyTorch and nothing of ONNX or HTTP.
"""
