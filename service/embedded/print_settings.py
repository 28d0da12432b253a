"""Prints the settings of the service in an application, for the supervisor, which does not import it.

`python -m turnpike.service.embedded.print_settings my_app:app`. Keys are left out: workers have them from the
application.
"""

from __future__ import annotations

import os
import sys

from turnpike.service.config.service_settings import ServiceSettings
from turnpike.service.config.settings import SECRETS
from turnpike.service.embedded.app_import import import_app
from turnpike.service.errors import SettingError

# set by the supervisor's own options, such as --host
NAMES = {"models", *ServiceSettings.__annotations__} - SECRETS - {"access_log"}


def main() -> int:
    """Returns 2 if there is no such application."""
    try:
        service = import_app(sys.argv[1]).service
    except SettingError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    settings = service.application.context.settings
    # the application may print, too: the supervisor reads the last line
    sys.stdout.write(f"\n{settings.model_dump_json(include=NAMES)}\n")
    return 0


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    sys.stderr.flush()
    # threads that the application has started would keep the process
    os._exit(status)
