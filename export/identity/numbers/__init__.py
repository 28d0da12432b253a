"""Numbers to run programs on: elements of random prime fields, and float64 to check the operators."""
