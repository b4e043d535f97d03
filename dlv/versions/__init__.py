"""What a version is, and what people do with one: add, commit, diff, checkout, copy, export, rm.

A verb a module: `commit` makes a version from what `add` staged (`staging`, `draft`), `describe`,
`diff`, `history` and `show` look at them, `checkout`, `copying` and `transfer` bring them back.
`version` is a version in Python.
"""
