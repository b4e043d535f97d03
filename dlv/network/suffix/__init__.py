"""The suffix metric: how far unread bits of a weight can move the scores; start at `metric`."""
