"""The only SQL: `dlv.db`, `live.db` and `trials.db`, as rows in and rows out.

`database` opens the catalogue, `schema.sql` says what is in it. Queries are written in `select`.
The catalogue is an index: everything in it can be made again from manifests, facts and packs.
"""
