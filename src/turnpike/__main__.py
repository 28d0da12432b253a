"""Starts the `turnpike` command, or says which extra installs the libraries of the command line."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line."""
    try:
        from turnpike import cli
    except ModuleNotFoundError as error:
        from turnpike.commands import missing_library

        library = str(error.name)
        if library.partition(".")[0] == "turnpike":
            raise
        command = sys.argv[1] if len(sys.argv) > 1 else ""
        sys.exit(f"error: {missing_library(command, library)}")
    cli.main()


if __name__ == "__main__":
    main()
