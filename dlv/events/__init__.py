"""Curves as TensorBoard and dlv write and serve them.

`formats` has the bytes, `logs` makes points of records, `provider` answers by run and tag,
`server` speaks HTTP. Where curves are kept is up to the room `curves`.
"""
