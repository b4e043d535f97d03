"""MLflow's stores, a folder or a database, read without MLflow."""
