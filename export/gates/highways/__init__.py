"""Finds which gated sums of a graph are highways, their positions, and the gates outside of highways."""
