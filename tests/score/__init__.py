"""Tests of `turnpike score`."""
