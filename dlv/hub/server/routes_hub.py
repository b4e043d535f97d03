"""Routes of the hub itself: health, limits, description, metrics."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict

import sqlalchemy as sa

from dlv.canonical import VERSION
from dlv.hub.records import REF_FORMAT, REMOTE_FORMAT
from dlv.hub.server import answers
from dlv.hub.server.access import Role
from dlv.hub.server.exchange import Answer, Exchange, Route
from dlv.hub.server.openapi import describe

FORMAT = "dlv/hub/1"


def health(call: Exchange) -> Answer:
    """Answer if the database does."""
    with call.hub.database.reading() as connection:
        connection.execute(sa.select(1))
    return Answer.of_json({"status": "ok"})


def config(call: Exchange) -> Answer:
    hub = call.hub
    return Answer.of_json(
        {
            "format": FORMAT,
            "version": VERSION,
            "url": hub.settings.url,
            "formats": [REF_FORMAT, REMOTE_FORMAT],
            "limits": asdict(hub.limits),
            "login": {"openid": hub.settings.openid is not None},
        }
    )


def routes(described: Callable[[], Sequence[Route]], metrics: Callable[[], bytes]) -> list[Route]:
    """Return the routes; `described` are all routes of the hub."""

    def openapi(call: Exchange) -> Answer:
        # Deeper than canonical JSON may be.
        return Answer(200, json.dumps(describe(described(), call.hub.settings.url)).encode())

    def show_metrics(_: Exchange) -> Answer:
        return Answer(200, metrics(), media_type="text/plain; version=0.0.4; charset=utf-8")

    free = Role.NONE
    return [
        Route(
            "GET",
            "/v1/health",
            free,
            health,
            "Show whether the hub can answer",
            answer=answers.HEALTH,
        ),
        Route("GET", "/v1/config", free, config, "Show limits and formats", answer=answers.CONFIG),
        Route(
            "GET", "/v1/openapi.json", free, openapi, "Describe this API", answer=answers.ANYTHING
        ),
        Route(
            "GET",
            "/v1/metrics",
            free,
            show_metrics,
            "Metrics for Prometheus",
            operator=True,
            answer=answers.TEXT_ANSWER,
            media="text/plain",
        ),
    ]
