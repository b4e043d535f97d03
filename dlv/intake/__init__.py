"""`dlv import`: what other tools kept becomes versions: checkpoints, MLflow runs, event files."""
