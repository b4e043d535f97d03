"""`slice` and `construct`: networks made from networks; `deriving` is the way in."""
