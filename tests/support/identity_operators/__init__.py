"""Cases that run each operator of export/identity in float64, beside PyTorch and onnxruntime."""
