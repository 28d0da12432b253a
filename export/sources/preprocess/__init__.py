"""Preprocessing that was fitted outside of the network, as a part of the network."""
