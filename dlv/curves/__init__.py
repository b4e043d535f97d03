"""Series of metrics: read from logs, kept in `live.db` and in packs, shown and served.

`ingest` reads what is new in a folder of logs, `store` answers questions, `frozen` moves series
into packs and back, `figures` is `dlv metrics`, `board` is `dlv tensorboard`. The formats of logs
and the servers are in `events`.
"""
