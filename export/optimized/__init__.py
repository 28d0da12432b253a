"""What onnxruntime's optimizer makes of a file, and whether that is still the function of the file.

The proof of an export is about the file. What runs is the graph that onnxruntime's optimizer makes of it.
"""
