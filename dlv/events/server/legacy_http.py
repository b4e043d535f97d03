"""The older HTTP API of TensorBoard over stored curves: `/data/runs` and what belongs to it."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import parse_qsl

from dlv.errors import NotFound, UsageError
from dlv.events.formats.pbtxt import limited_graph, text
from dlv.events.provider.provider import Provider
from dlv.events.server.legacy_answers import SIZES, LegacyAnswers
from dlv.events.server.media import media
from dlv.events.server.responses import Answer, Environ, Start, document

SAMPLES = 10  # points of each tag where all tags are asked for
_MOST_DIGITS = 18
_MOST_PARAMETERS = 64


class Asked:
    """The query of a request; of a name that is given twice, the first value counts."""

    def __init__(self, environ: Environ) -> None:
        given = environ.get("QUERY_STRING", "")
        try:
            pairs = parse_qsl(given, keep_blank_values=True, max_num_fields=_MOST_PARAMETERS)
        except ValueError as error:
            raise UsageError("the query has too many parameters") from error
        self._given: dict[str, str] = dict(reversed(pairs))
        # Those who do not say what they accept get what the document promises.
        self.gzip = "gzip" in environ.get("HTTP_ACCEPT_ENCODING", "gzip")

    def __contains__(self, name: str) -> bool:
        return name in self._given

    def text(self, name: str, default: str | None = None) -> str:
        found = self._given.get(name, default)
        if found is None:
            raise UsageError(f"`{name}` is missing", why="the address must say it, after `?`")
        return found

    def number(self, name: str, least: int, default: int | None = None) -> int:
        value = self.text(name, None if default is None else str(default))
        plain = value.isascii() and value.isdigit() and len(value) <= _MOST_DIGITS
        if not plain or (name in self and int(value) < least):
            raise UsageError(
                f"`{name}` is `{value[:100]}`", why=f"it must be a whole number, {least} or more"
            )
        return int(value)


Route = Callable[[LegacyAnswers, Asked], Answer]


class LegacyApi:
    """A WSGI application. Its routes are also answered without `/data` in front.

    `ask` gives the provider of the thread that answers; `sizes` are those of reservoirs.
    """

    def __init__(
        self,
        ask: Callable[[], Provider],
        sizes: Mapping[str, int] = SIZES,
        experiment: str = "",
    ) -> None:
        self._ask = ask
        self._sizes = sizes
        self._experiment = experiment

    def __call__(self, environ: Environ, start: Start) -> Iterable[bytes]:
        path = environ.get("PATH_INFO", "")
        route = ROUTES.get(path.removeprefix("/data"))
        if route is None:
            raise NotFound(
                f"no page `{path[:100]}`", hint=f"there are {', '.join(ROUTES)} under /data"
            )
        if environ.get("REQUEST_METHOD") == "POST":
            answer = Answer(b"not allowed\n", status=405, headers={"Allow": "GET, HEAD"})
        else:
            answers = LegacyAnswers(self._ask(), self._sizes, self._experiment)
            answer = route(answers, Asked(environ))
        return answer.send(environ, start)


def _runs(answers: LegacyAnswers, _: Asked) -> Answer:
    return document(answers.runs())


def _scalars(answers: LegacyAnswers, asked: Asked) -> Answer:
    form = asked.text("format", "json")
    if form not in ("json", "csv"):
        raise UsageError(f"no format `{form[:100]}`", hint="format=json or format=csv")
    if form == "csv":
        table = answers.scalars_csv(asked.text("run"), asked.text("tag"))
        return Answer(table.encode(), "text/csv; charset=utf-8")
    if "run" in asked or "tag" in asked:
        return document(answers.scalars(asked.text("run"), asked.text("tag")))
    return document(answers.sampled_scalars(asked.number("sample_count", 2, SAMPLES)))


def _graph(answers: LegacyAnswers, asked: Asked) -> Answer:
    run, key = asked.text("run"), asked.text("large_attrs_key", "")
    limit = asked.number("limit_attr_size", 1, 0)
    if limit and not key:
        raise UsageError("`large_attrs_key` is missing", why="limit_attr_size needs it")
    graph = answers.graph(run)
    return _gzipped("GraphDef", limited_graph(graph, limit, key) if limit else graph, asked)


def _run_metadata(answers: LegacyAnswers, asked: Asked) -> Answer:
    return _gzipped(
        "RunMetadata", answers.run_metadata(asked.text("run"), asked.text("tag")), asked
    )


def _of_tag(answer: Callable[[LegacyAnswers, str, str], Any]) -> Route:
    return lambda answers, asked: document(answer(answers, asked.text("run"), asked.text("tag")))


def _item(answer: Callable[[LegacyAnswers, str, str, int, int], Iterator[bytes]]) -> Route:
    """`number`: which of several at one step."""

    def one(answers: LegacyAnswers, asked: Asked) -> Answer:
        place, number = asked.number("index", 0), asked.number("number", 0, 0)
        return media(answer(answers, asked.text("run"), asked.text("tagname"), place, number))

    return one


def _gzipped(kind: str, data: bytes, asked: Asked) -> Answer:
    body = "".join(f"{line}\n" for line in text(kind, data)).encode()
    headers = {"Vary": "Accept-Encoding"}
    if asked.gzip:
        body = gzip.compress(body, 6, mtime=0)
        headers["Content-Encoding"] = "gzip"
    return Answer(body, "text/x-protobuf; charset=utf-8", headers=headers)


ROUTES: Mapping[str, Route] = {
    "/runs": _runs,
    "/scalars": _scalars,
    "/histograms": _of_tag(LegacyAnswers.histograms),
    "/compressedHistograms": _of_tag(LegacyAnswers.compressed_histograms),
    "/images": _of_tag(LegacyAnswers.images),
    "/individualImage": _item(LegacyAnswers.image),
    "/audio": _of_tag(LegacyAnswers.audio),
    "/individualAudio": _item(LegacyAnswers.clip),
    "/graph": _graph,
    "/run_metadata": _run_metadata,
}
