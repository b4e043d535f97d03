"""Metrics that trainers write as text: JSON lines, CSV and trainer_state.json become series."""
