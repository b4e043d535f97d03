"""`archive --bounds`: records of what the first planes of a snapshot leave open.

`run` is the verb, `make` computes a record, `checking` computes it again.
"""
