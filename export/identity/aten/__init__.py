"""Runs programs of torch.export on terms."""
