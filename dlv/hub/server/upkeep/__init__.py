"""Upkeep of a hub: `checking` compares database and store, `backup` copies both and restores."""
