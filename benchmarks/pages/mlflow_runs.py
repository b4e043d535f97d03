"""Write runs into an MLflow store; started with the Python that has MLflow.

python mlflow_runs.py DATABASE RUNS
"""

import json
import sys
import time

from mlflow.entities import Metric, Param, RunTag
from mlflow.tracking import MlflowClient

database, count = sys.argv[1], int(sys.argv[2])
client = MlflowClient(tracking_uri=f"sqlite:///{database}")
experiment = client.create_experiment("versions")
for number in range(count):
    run = client.create_run(experiment, run_name=f"lenet@{number + 1}").info.run_id
    now = int(time.time() * 1000)
    record = json.loads(sys.stdin.readline())
    client.log_batch(
        run,
        [Metric(name, value, now, 0) for name, value in record["metrics"].items()],
        [Param(name, str(value)) for name, value in record["parameters"].items()],
        [RunTag("mlflow.note.content", record["message"])],
    )
    client.set_terminated(run)
