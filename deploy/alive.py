#!/usr/bin/env -S python3 -IS
"""The health check of the images: `alive URL` exits with 0 if the container's server answers 200.

Otherwise it prints the answer, which `docker inspect` shows. /v2/health/ready says why it is not ready.
"""

import socket
import sys

url = sys.argv[1]
scheme, _, rest = url.partition("://")
address, _, path = rest.partition("/")
host, _, port = address.partition(":")
try:
    # less than the timeout of the check in docker-compose.yml
    connection = socket.create_connection((host, int(port)), timeout=2)
    if scheme == "https":
        # imported only here, because the import takes as long as the rest of the check
        import ssl

        # The certificate is for the name that clients use. The check asks 127.0.0.1, where only its own
        # container can answer, and sends nothing secret.
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        connection = context.wrap_socket(connection)
    with connection, connection.makefile("rb") as answer:
        connection.sendall(f"GET /{path} HTTP/1.0\r\n\r\n".encode())
        first = answer.readline().decode(errors="replace").strip()
        if first.split()[1:2] == ["200"]:
            sys.exit(0)
        body = answer.read().decode(errors="replace").partition("\r\n\r\n")[2]
except OSError as error:
    sys.exit(f"{url}: {error}")
sys.exit(f"{url}: expected 200, got {first!r}: {body}")
