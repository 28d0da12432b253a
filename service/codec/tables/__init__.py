"""What a table says beyond its numbers: cells that are new to the model, and the column it predicts."""
