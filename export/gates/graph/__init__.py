"""Reads a graph: its nodes, shapes, loops and branches, and where the elements of its values come from."""
