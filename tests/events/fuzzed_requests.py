"""Requests as nobody's browser would send them: known routes with values that make no sense."""

from __future__ import annotations

import io
import json
import random
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote, urlencode

from dlv.events.server.security import App, Environ

HOST = "127.0.0.1:6006"
TOKEN = "t0ken"

PLUGIN = "/data/plugin/"
ROUTES = [
    *("/", "/index.html", "/index.js", "/data/plugins_listing", "/data/plugin_entry.html"),
    *("/data/logdir", "/data/environment", "/data/runs", "/data/experiments"),
    *("/data/experiment_runs", "/data/window_properties", "/data/notifications"),
    *(f"{PLUGIN}scalars/{word}" for word in ("tags", "scalars", "scalars_multirun")),
    *(f"{PLUGIN}timeseries/{word}" for word in ("tags", "timeSeries", "imageData", "cardMetadata")),
    *(f"{PLUGIN}images/{word}" for word in ("tags", "images", "individualImage")),
    *(f"{PLUGIN}audio/{word}" for word in ("tags", "audio", "individualAudio")),
    *(f"{PLUGIN}histograms/{word}" for word in ("tags", "histograms")),
    *(f"{PLUGIN}distributions/{word}" for word in ("tags", "distributions")),
    *(f"{PLUGIN}text/{word}" for word in ("tags", "text")),
    *(f"{PLUGIN}pr_curves/{word}" for word in ("tags", "pr_curves")),
    *(f"{PLUGIN}mesh/{word}" for word in ("tags", "meshes", "data")),
    *(f"{PLUGIN}graphs/{word}" for word in ("info", "graph", "run_metadata")),
    *(f"{PLUGIN}custom_scalars/{word}" for word in ("layout", "scalars", "download_data")),
    *(f"{PLUGIN}hparams/{word}" for word in ("experiment", "session_groups", "metric_evals")),
    f"{PLUGIN}hparams/download_data",
    *(f"{PLUGIN}projector/{word}" for word in ("runs", "info", "tensor", "metadata")),
    *(f"{PLUGIN}projector/{word}" for word in ("sprite_image", "bookmarks", "index.js")),
    "/data/blob/",
    *(f"/legacy/data/{word}" for word in ("runs", "scalars", "histograms", "images", "audio")),
    *(f"/legacy/data/{word}" for word in ("compressedHistograms", "individualImage", "graph")),
    *(f"/legacy/{word}" for word in ("individualAudio", "run_metadata", "runs", "")),
]
NAMES = [
    *("run", "tag", "tagname", "index", "sample", "blob_key", "format", "sample_count", "step"),
    *("limit_attr_size", "large_attrs_key", "name", "num_rows", "plugin", "conceptual", "number"),
    *("experiment", "experimentalPlugin", "columnsVisibility", "requests", "content_type", "ts"),
    *("markdown", "imageId", "tagFilter", "token", "request"),
]
ODD: list[str] = [
    *("", "0", "-1", "1", "2", "10", "1e9", "NaN", "9" * 30, "2.5", "true", "null", "[]", "{}"),
    *("../../../etc/passwd", "..", "/", "//", "\x00", "a\nb", "%00", "%ff", "'", '"', "<script>"),
    *("' OR 1=1 --", "\ud83d\ude00".encode("utf-16", "surrogatepass").decode("utf-16"), "*", "?"),
    *(
        "a" * 5000,
        "[" * 2000,
        "{" * 2000,
        "(" * 500,
        "(a+)+$",
        "json",
        "csv",
        "image/png",
        "\r\nX: y",
    ),
]
REQUEST: list[Any] = [
    {"plugin": "scalars", "tag": "loss"},
    {"plugin": "images", "tag": "input/image", "sample": 0, "run": "train"},
    {"plugin": "histograms", "tag": "weights"},
]
HPARAMS: list[Any] = [
    {"experimentName": "", "includeMetrics": True, "hparamsLimit": 3},
    {"allowedStatuses": ["STATUS_UNKNOWN"], "colParams": [{"hparam": "lr"}], "sliceSize": 10},
    {"sessionName": "train", "metricName": {"group": "", "tag": "loss"}},
]
HEADERS = [
    "ACCEPT_ENCODING",
    "ACCEPT",
    "COOKIE",
    "ORIGIN",
    "HOST",
    "REFERER",
    "RANGE",
    "IF_NONE_MATCH",
]


class Fuzz:
    """Draws requests; `known` are names of runs, tags and keys that are there."""

    def __init__(self, seed: int, known: Sequence[str]) -> None:
        self.random = random.Random(seed)
        self.values = [*ODD, *known, *known, *known]

    def request(self) -> Environ:
        body = self._body()
        found: Environ = {
            "REQUEST_METHOD": self._method(),
            "SCRIPT_NAME": "",
            "PATH_INFO": self._path(),
            "QUERY_STRING": self._query(),
            "SERVER_NAME": "127.0.0.1",
            "SERVER_PORT": "6006",
            "SERVER_PROTOCOL": "HTTP/1.1",
            "HTTP_HOST": HOST,
            "HTTP_AUTHORIZATION": f"Bearer {TOKEN}",
            "wsgi.url_scheme": "http",
            "wsgi.input": io.BytesIO(body),
            "wsgi.errors": io.StringIO(),
            "CONTENT_LENGTH": str(len(body)),
            "CONTENT_TYPE": self.random.choice(
                [
                    "application/json",
                    "application/x-www-form-urlencoded",
                    "multipart/form-data; boundary=x",
                    "text/plain",
                    "multipart/form-data",
                    "",
                ]
            ),
        }
        if self._now(0.1):
            header = self.random.choice(HEADERS)
            found[f"HTTP_{header}"] = self._value().encode("utf-8", "replace").decode("latin-1")
        if self._now(0.02):
            found["CONTENT_LENGTH"] = self._value()
        if self._now(0.02):
            del found["HTTP_AUTHORIZATION"]
        return found

    def _now(self, chance: float) -> bool:
        return self.random.random() < chance

    def _value(self) -> str:
        if self._now(0.2):
            return "".join(chr(self.random.randrange(1, 0x2FF)) for _ in range(6))
        return self.random.choice(self.values)

    def _method(self) -> str:
        if self._now(0.03):
            return self.random.choice(["PUT", "OPTIONS", "TRACE", "", "get", "\x00"])
        return self.random.choice(["GET", "GET", "GET", "POST", "HEAD"])

    def _path(self) -> str:
        path = self.random.choice(ROUTES)
        if path.endswith("/blob/") or self._now(0.05):
            path += self._value()
        if self._now(0.05):
            path = path.replace("/data", f"/experiment/{quote(self._value())}/data", 1)
        if self._now(0.05):
            at = self.random.randrange(len(path) + 1)
            path = path[:at] + self._value() + path[at + self.random.randrange(3) :]
        # As a server hands it over: bytes, read as Latin-1.
        return path.encode("utf-8", "replace").decode("latin-1")

    def _query(self) -> str:
        pairs = [
            (self.random.choice(NAMES), self._value())
            for _ in range(self.random.choice([0, 1, 2, 2, 3, 3, 4]))
        ]
        if self._now(0.3):
            pairs += [
                ("requests", json.dumps(self._requests())),
                ("request", json.dumps(self._hparams())),
            ]
        query = urlencode(pairs, errors="replace")
        if self._now(0.03):
            query += self.random.choice(["&&&", "=", "%", "%zz", "&a" * 200, ";", "#"])
        return query

    def _requests(self) -> Any:
        made = [self._bent(item) for item in self.random.choices(REQUEST, k=2)]
        return self._bent(made) if self._now(0.2) else made

    def _hparams(self) -> Any:
        return self._bent(self.random.choice(HPARAMS))

    def _bent(self, value: Any) -> Any:
        """A document with something in it replaced by something else."""
        if self._now(0.1):
            return self.random.choice(
                [None, 0, -1, 1e300, True, [], {}, [[]], {"a": {}}, self._value()]
            )
        if isinstance(value, dict):
            return {key: self._bent(item) for key, item in value.items() if not self._now(0.05)}
        if isinstance(value, list):
            return [self._bent(item) for item in value]
        return self._value() if self._now(0.2) else value

    def _body(self) -> bytes:
        kind = self.random.randrange(6)
        if kind == 0:
            return json.dumps(self._hparams()).encode()
        if kind == 1:
            return urlencode(
                {"requests": json.dumps(self._requests()), "runs": self._value()}
            ).encode()
        if kind == 2:
            part = 'Content-Disposition: form-data; name="%s"\r\n\r\n%s\r\n'
            parts = [part % ("requests", json.dumps(self._requests()))]
            parts += [part % (name, self._value()) for name in ("tag", "runs", "runs")]
            return ("--x\r\n" + "--x\r\n".join(parts) + "--x--\r\n").encode("utf-8", "replace")
        if kind == 3:
            return self.random.randbytes(self.random.randrange(200))
        return b""


def answered(app: App, environ: Environ) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body of one request."""
    seen: list[Any] = []
    found = app(environ, lambda *told: seen.append(told))
    body = b"".join(found)
    close = getattr(found, "close", None)
    if close is not None:
        close()
    status, headers, *_ = seen[-1]
    return int(status.split()[0]), {name.lower(): value for name, value in headers}, body
