"""Starts the `turnpike` command, or says which extra installs the libraries of the command line."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line."""
    try:
        from turnpike import cli
    except ModuleNotFoundError as error:
        from turnpike.commands import missing_extra
        from turnpike.common.distribution import missing_library

        library = missing_library(error)
        if library is None:
            raise
        command = sys.argv[1] if len(sys.argv) > 1 else ""
        sys.exit(f"error: {missing_extra(command, library)}")
    cli.main()


if __name__ == "__main__":
    main()
