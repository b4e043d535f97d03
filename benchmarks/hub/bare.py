"""What a hub is compared with: a bare Starlette route that reads one row of the same database.

python -m benchmarks.hub.bare DATABASE PORT
"""

from __future__ import annotations

import sys

import sqlalchemy as sa
import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from dlv.hub.server import tables

REF = sa.select(tables.ref.c.record).where(
    tables.ref.c.repository_id == sa.bindparam("repository"),
    tables.ref.c.name == sa.bindparam("name"),
    tables.ref.c.seq == sa.bindparam("seq"),
)
CARD = (
    sa.select(tables.card_text.c.record)
    .join(tables.card, tables.card.c.id == tables.card_text.c.card_id)
    .where(
        tables.card.c.repository_id == sa.bindparam("repository"),
        tables.card.c.name == sa.bindparam("name"),
        tables.card.c.number == sa.bindparam("number"),
    )
)


def main() -> None:
    address, port = sys.argv[1:]
    url = sa.make_url(address).set(drivername="postgresql+psycopg")
    engine = sa.create_engine(url, pool_size=24, max_overflow=24)

    def row(query: sa.Select[tuple[object]], values: dict[str, object]) -> object:
        with engine.connect() as connection:
            return connection.execute(query, values).scalar()

    async def ref(request: Request) -> Response:
        parts = request.path_params
        values = {"repository": parts["repository"], "name": parts["name"], "seq": parts["seq"]}
        return _response(await run_in_threadpool(row, REF, values))

    async def card(request: Request) -> Response:
        parts = request.path_params
        values = {"repository": parts["repository"], "name": parts["name"]}
        values["number"] = parts["number"]
        return _response(await run_in_threadpool(row, CARD, values))

    def _response(record: object) -> Response:
        if record is None:
            return Response(b"", 404)
        data = record if isinstance(record, bytes) else str(record)
        return Response(data, media_type="application/json")

    routes = [
        Route("/refs/{repository:int}/{name}/{seq:int}", ref),
        Route("/cards/{repository:int}/{name}/{number:int}", card),
    ]
    uvicorn.run(Starlette(routes=routes), port=int(port), log_level="error", access_log=False)


if __name__ == "__main__":
    main()
