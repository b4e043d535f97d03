"""What Prometheus reads of a hub: requests, times, bytes, and the state of its stores."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.process_collector import ProcessCollector

from dlv.hub.server.hub import Hub

_TIMES = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class Metrics:
    """The metrics of one process."""

    def __init__(self, hub: Hub) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        registry = self.registry
        self.requests = Counter(
            "dlv_hub_requests", "Requests answered", ["method", "route", "status"],
            registry=registry,
        )  # fmt: skip
        self.seconds = Histogram(
            "dlv_hub_request_seconds", "Time until a request was answered", ["route"],
            buckets=_TIMES, registry=registry,
        )  # fmt: skip
        self.sent = Counter("dlv_hub_sent_bytes", "Bytes of answers", registry=registry)
        self.active = Gauge("dlv_hub_requests_active", "Requests in progress", registry=registry)
        connections = Gauge(
            "dlv_hub_database_connections", "Database connections in use", registry=registry
        )
        connections.set_function(lambda: hub.database.in_use)
        waiting = Gauge(
            "dlv_hub_cards_waiting", "Models whose cards will be made", registry=registry
        )
        waiting.set_function(lambda: len(hub.backlog))

    def answered(self, method: str, route: str, status: int, seconds: float, sent: int) -> None:
        self.requests.labels(method, route, str(status)).inc()
        self.seconds.labels(route).observe(seconds)
        self.sent.inc(sent)

    def text(self) -> bytes:
        return generate_latest(self.registry)
