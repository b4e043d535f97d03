"""`dlv demo`: a small repository to try things in; `run` makes it, `training` is its train.py."""
