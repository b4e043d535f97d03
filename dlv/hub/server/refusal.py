"""Refusals: the answers of a hub other than success."""

from __future__ import annotations

from collections.abc import Mapping

from dlv.errors import Conflict, DlvError, NotFound, RemoteError, UsageError

# Exit codes and kinds of the errors that clients show for a status.
_KINDS = {
    400: UsageError, 404: NotFound, 409: Conflict, 412: Conflict, 413: UsageError, 416: UsageError,
    422: UsageError, 428: UsageError,
}  # fmt: skip


class Refused(Exception):
    """An answer other than success: the status, and what happened in words."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        why: str | None = None,
        hint: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        kind = _KINDS.get(status, RemoteError)
        self.error: DlvError = kind(message, why=why, hint=hint)
        self.headers = dict(headers or {})


def not_found() -> Refused:
    """The one answer for what does not exist and for what the caller may not know of."""
    return Refused(
        404,
        "not found",
        hint="check the address; a private repository requires a token: dlv login URL",
    )
