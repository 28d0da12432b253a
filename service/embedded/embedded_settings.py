"""The settings of a service in an application of somebody else, from its code and the environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from turnpike.service.config.resolve import resolve, unknown_setting
from turnpike.service.config.service_settings import ServiceSettings
from turnpike.service.config.settings import Settings
from turnpike.service.errors import SettingError

# the host in the settings decides for which names a local service answers; here the ASGI server listens
ANY_ADDRESS = "0.0.0.0"  # noqa: S104


@dataclass(frozen=True)
class EmbeddedSettings:
    """The settings of a service. `origins` says for each that is no default where it came from.

    `arguments` has the names of those that the code of the application set.
    """

    settings: Settings
    origins: Mapping[str, str]
    arguments: frozenset[str]

    @classmethod
    def from_arguments(
        cls,
        models: str | Path | None,
        arguments: ServiceSettings,
        defaults: ServiceSettings | None = None,
    ) -> EmbeddedSettings:
        """The settings for the arguments of `create_app` or `router`.

        Args:
            models: What to serve, as an argument.
            arguments: The other arguments.
            defaults: Defaults that differ from those of `turnpike serve`.

        Raises:
            SettingError: A setting is unknown or invalid.
        """
        for name in arguments:
            if name not in ServiceSettings.__annotations__:
                reason = (
                    "belongs to the server that runs the application"
                    if name in Settings.model_fields
                    else unknown_setting(name)
                )
                raise SettingError(f"{name}: {reason}")
        named: dict[str, Any] = {**arguments}
        if models is not None:
            named["models"] = str(models)
        resolved = resolve(named, spelling=str)
        changes: dict[str, Any] = {"host": ANY_ADDRESS}
        if "access_log" not in resolved.origins:
            # servers have access logs of their own
            changes["access_log"] = False
        others = {name: value for name, value in (defaults or {}).items() if name not in resolved.origins}
        origins = {**resolved.origins, **dict.fromkeys(others, "default of turnpike.router")}
        settings = resolved.settings.model_copy(update=changes | others)
        return cls(settings, origins, frozenset(named))
