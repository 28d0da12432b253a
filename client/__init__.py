"""A Python client of a running service: arrays and tables in and out, retries, gates that draw themselves."""
