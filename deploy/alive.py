#!/usr/bin/env -S python3 -IS
"""The health check of the images: `alive PORT PATH` exits with 0 if the container's server answers 200."""

import socket
import sys

port, path = int(sys.argv[1]), sys.argv[2]
with socket.create_connection(("127.0.0.1", port), timeout=2) as connection:
    connection.sendall(f"GET {path} HTTP/1.0\r\n\r\n".encode())
    sys.exit(0 if connection.makefile("rb").readline().split()[1:2] == [b"200"] else 1)
