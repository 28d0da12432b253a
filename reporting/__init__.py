"""Builds pages for people: HTML with one style, charts in SVG, and numbers as text.

Takes figures and words, returns one self-contained page, which needs no script and loads nothing. The
packages that measure something choose the charts and write the sentences. Imports the standard library alone.
"""
