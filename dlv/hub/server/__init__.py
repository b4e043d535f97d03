"""The hub: one stateless server over a database and an object store.

`tables` is what the database holds, `repositories` and `objects` are what may be done with it,
`access` decides for whom, `routes` says under which address, and `application` answers requests.
The pages for people are in `dlv.ui.hub`.
"""
