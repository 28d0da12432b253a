"""Refuses `import service` in the tests' processes, and by PYTHONPATH in the processes that they start."""
