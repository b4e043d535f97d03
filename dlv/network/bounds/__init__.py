"""Sound bounds: how far a network's scores can be from the exact ones while bits are unread.

`interval` runs a network in ball arithmetic, `schedule` says which planes to read next.
"""
