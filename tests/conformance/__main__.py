"""Run the suite against a server, and print where it differs."""

from __future__ import annotations

import argparse
import json
import sys

from tests.conformance.grpc_case import stubs_of
from tests.conformance.suite import NAMES, differences


def main() -> int:
    """Returns the exit status: 1 if the server differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--http", required=True, metavar="HOST:PORT")
    parser.add_argument("--grpc", required=True, metavar="HOST:PORT")
    parser.add_argument("--stubs", required=True, metavar="MODULE", help="module of the generated messages")
    parser.add_argument("--json", action="store_true", help="print an object: the sentence of each case")
    options = parser.parse_args()
    found = differences(options.http, options.grpc, stubs_of(options.stubs))
    if options.json:
        json.dump(found, sys.stdout)
        return 0
    for name, text in found.items():
        sys.stdout.write(f"{name}: {text}\n")
    sys.stdout.write(f"{len(NAMES) - len(found)} of {len(NAMES)} cases are as the protocol says\n")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
