"""torch.save's files read without torch and without running what is in them, and written.

`reader` is the adapter, `pickles` the checked walk over the opcodes, `writer` makes files.
"""
