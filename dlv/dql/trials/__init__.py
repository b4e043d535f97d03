"""`evaluate`: candidates, configurations, training and winners; `evaluating` is the way in."""
