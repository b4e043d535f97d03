"""What trains a trial: torch, a function or a program of the user's own. See `interface`."""
