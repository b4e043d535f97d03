"""Networks of torch: modules traced by torch.export, and `.pt2` files read without torch.

`live` traces a module, `functional` turns writes into functions, `guard` compares the result with
the module, `network` and `ops` translate the operations.
"""
