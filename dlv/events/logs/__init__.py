"""From records of a log to points: restarts, old kinds of summaries, many records at a time."""
