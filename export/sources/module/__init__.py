"""PyTorch modules from the user's Python files: imports and calls them, and loads weights into them."""
