"""Programs of torch.export: as objects, or in .pt2 files, which are made harmless before they are read."""
