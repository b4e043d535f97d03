"""The verbs of the command line, a file each: options, one call of the library, one `emit`.

`cli.py` has the table of them. What several share lies in `shared`. Nothing is decided here: a
command that needs more than its options calls a room below.
"""
