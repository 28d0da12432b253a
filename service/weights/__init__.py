"""The cache of prepared weights: files of this user that workers map instead of loading a model anew."""
