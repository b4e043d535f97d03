"""dlv: version control for deep-learning models."""
