"""Highway networks in PyTorch: layers, whole networks, data sets, training, plots and depth studies.

Sub-packages import in one direction: cli, study, plots, training, networks, layers; training also imports
data. Nothing here knows ONNX or HTTP.
"""
