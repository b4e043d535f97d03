"""Rules that make a bound query easier to ask, with the same answer; `rewrite` applies them."""
