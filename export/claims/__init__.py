"""Checks what the manifest of a file claims, field by field, against what a verification computed itself.

`check.check_claims` is the entry point. Every field of the manifest is either checked, or listed as claimed
with the reason. May import the proof, the measurements and `compress`.
"""
