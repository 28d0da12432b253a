"""The application of Ray Serve: for `turnpike serve --engine ray`, and for `serve build` and `serve deploy`.

In a config file of Ray Serve, `import_path` is `turnpike.service.ray.application:build_for_config_file`,
and `args` has the settings.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ray import serve
from ray.serve import Application

from turnpike.service.config.resolve import resolve, unknown_setting
from turnpike.service.config.settings import SECRETS, Settings
from turnpike.service.errors import SettingError
from turnpike.service.ray.coordinator import Coordinator
from turnpike.service.ray.replica import Replica, replica_with_models_on_request
from turnpike.service.requests.auth import AccessLevel, Authenticator

NAME = "turnpike"
ANY_ADDRESS = "0.0.0.0"  # noqa: S104
# Requests that a replica takes at most, as a multiple of those that it should have. Ray keeps the others back
# until a replica is free.
BURST = 8
# as each replica starts with all its models, which takes longer than a request
HEALTH_CHECK_SECONDS, HEALTH_CHECK_LIMIT = 5.0, 30.0
# a stream of requests that rises for so long adds replicas, and one that falls for so long takes some away
UPSCALE_SECONDS, DOWNSCALE_SECONDS = 5.0, 120.0


def build_for_config_file(args: Mapping[str, Any]) -> Application:
    """The application with these settings. Options of the deployment in a config file override what they say.

    Raises:
        SettingError: A setting is unknown or invalid.
    """
    # Ray's proxies listen, and the application does not learn where: requests may name any host
    unknown = [name for name in args if name not in Settings.model_fields]
    if unknown:
        raise SettingError(unknown_setting(unknown[0]))
    try:
        return build_from({"host": ANY_ADDRESS, **args, "engine": "ray"})
    except SettingError as error:
        # Ray shows the whole trace; it shall end with the message
        raise SettingError(str(error)) from None


def build_from(arguments: Mapping[str, Any]) -> Application:
    """The application with the settings of `arguments` and of the environment only."""
    settings = resolve(arguments).settings
    auth = Authenticator.from_settings(settings)
    levels: tuple[AccessLevel, ...] = ("api", "admin")
    keys = tuple(level for level in levels if auth.has_keys(level))
    models = settings.replica_models
    replica = serve.ingress()(replica_with_models_on_request(models) if models else Replica)
    coordinator = serve.deployment(
        Coordinator,
        name="coordinator",
        num_replicas=1,
        ray_actor_options={"num_cpus": 0},
        # each replica reports once a second, and an order waits for all of them
        max_ongoing_requests=10_000,
    )
    return serve.deployment(replica, **deployment_options(settings)).bind(
        dict(arguments), keys, coordinator.bind()
    )


def deployment_options(settings: Settings) -> dict[str, Any]:
    """What Ray Serve must know to place and scale the replicas."""
    return {
        "name": NAME,
        "autoscaling_config": {
            "min_replicas": settings.min_replicas,
            "initial_replicas": max(1, settings.min_replicas),
            "max_replicas": settings.max_replicas,
            "target_ongoing_requests": settings.replica_requests,
            "upscale_delay_s": UPSCALE_SECONDS,
            "downscale_delay_s": DOWNSCALE_SECONDS,
        },
        "max_ongoing_requests": BURST * settings.replica_requests,
        "max_queued_requests": settings.queue,
        "ray_actor_options": {"num_cpus": settings.replica_cpus, "num_gpus": settings.replica_gpus},
        "graceful_shutdown_timeout_s": settings.drain_wait + settings.drain_seconds,
        # the application has a log of its own
        "logging_config": {"enable_access_log": False},
        "health_check_period_s": HEALTH_CHECK_SECONDS,
        "health_check_timeout_s": HEALTH_CHECK_LIMIT,
    }


def arguments_of(settings: Settings) -> dict[str, Any]:
    """Settings as arguments of `build`: without secrets, and with paths that hold in any current folder."""
    settings = settings.model_copy(
        update={
            name: path.absolute()
            for name in ("models", "model_cache", "api_keys_file", "admin_key_file")
            if isinstance(path := getattr(settings, name), Path)
        }
    )
    return settings.model_dump(mode="json", exclude=set(SECRETS), exclude_none=True)
