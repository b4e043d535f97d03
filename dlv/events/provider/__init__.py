"""Curves by experiment, run and tag for whoever shows them; `provider` is the data API."""
