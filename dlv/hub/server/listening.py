"""The socket of a hub, bound before anything else so that the port is known."""

from __future__ import annotations

import errno
import socket

from dlv.errors import Conflict, UsageError, denied


def listen(host: str, port: int) -> socket.socket:
    """Return a bound socket; the errors say what to do about a port that is taken or reserved."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=2048)
    except PermissionError as error:
        _, hint = denied(f"port {port}") or ("", None)
        raise UsageError(f"port {port} may not be used", why=error.strerror, hint=hint) from error
    except OSError as error:
        place = f"{host}:{port}"
        if error.errno == errno.EADDRINUSE:
            raise Conflict(
                f"cannot listen at {place}",
                why="another program uses this port",
                hint="choose another --port",
            ) from error
        # What follows in brackets repeats the address.
        why = (error.strerror or "").partition(" (")[0]
        raise UsageError(
            f"cannot listen at {place}", why=why, hint="use --host with an address of this computer"
        ) from error


def address(host: str, port: int) -> str:
    """Return the address under which this computer itself reaches a server."""
    everywhere = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}
    return f"http://{everywhere.get(host, f'[{host}]' if ':' in host else host)}:{port}"
