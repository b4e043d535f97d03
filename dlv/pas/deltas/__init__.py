"""A matrix told by another one: integer differences, low ranks and drifts; `search` finds them."""
