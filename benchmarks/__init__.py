"""What turnpike costs beside its rivals and beside what no server could do better: measured, and told."""
