"""Which gated sums of a graph are highways, where they stand, and which gates are others."""
