"""Queries: select, slice, construct and evaluate, from text to rows, networks and trials.

`words` reads the text into a tree, `bind` decides every name in it, `derive` makes networks,
`trials` trains them. `execute` runs a statement from beginning to end; the SQL of a select is
written in `metadata/select`.
"""
