"""Curves by experiment, run and tag, for pages that show them; `provider` is the data API."""
