"""The application with the settings of the environment alone, for `serve build`, which gives no arguments."""

from __future__ import annotations

from turnpike.service.ray.application import build_for_config_file

app = build_for_config_file({})
