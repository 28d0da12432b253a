"""A museum of real bugs: files that exporters and runtimes wrote or computed wrongly, without an error.

`collection` has all exhibits. A module per kind has the networks, and what each bug did to their files.
"""
