"""Prints the settings of the service in an application, for the supervisor, which does not import it.

`python -m turnpike.service.embedded.print_settings my_app:app`. Keys are left out: workers have them from the
application.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from turnpike.service.config.resolve import resolve
from turnpike.service.config.service_settings import ServiceSettings
from turnpike.service.config.settings import SECRETS
from turnpike.service.embedded.app_import import import_app
from turnpike.service.errors import SettingError

# set by the supervisor's own options, such as --host
NAMES = {"models", *ServiceSettings.__annotations__} - SECRETS - {"access_log"}


def described(name: str) -> dict[str, Any]:
    """The settings of an application, or the error that says why there is none.

    `origins` says where their values come from, and `secrets` names the keys that are set. `overridden` names
    settings whose values in the environment the code of the application replaces by others.
    """
    try:
        resolved = import_app(name).service.resolved
        environment = resolve({})
    except SettingError as error:
        return {"error": str(error)}
    settings, arguments = resolved.settings, resolved.arguments
    return {
        "settings": settings.model_dump(mode="json", include=NAMES),
        "origins": {
            setting: f"{setting}= in {name}" if setting in arguments else origin
            for setting, origin in resolved.origins.items()
        },
        "overridden": [
            setting
            for setting in environment.origins
            if setting in arguments and getattr(environment.settings, setting) != getattr(settings, setting)
        ],
        "secrets": [secret for secret in sorted(SECRETS) if getattr(settings, secret)],
    }


def main() -> None:
    """Print a line of JSON. The application may print, too: the supervisor reads the last line."""
    sys.stdout.write(f"\n{json.dumps(described(sys.argv[1]))}\n")


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    sys.stderr.flush()
    # threads that the application has started would keep the process
    os._exit(0)
