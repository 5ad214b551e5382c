"""Points for MLflow: metrics of one of its runs, known by a tag. What it holds already is not sent again."""

from __future__ import annotations

import time

from bocl.extras import needed
from bocl.tracking.points import TrackedRun

EXPERIMENT = "bocl"
TAG = "bocl.run"
AT_ONCE = 1000  # the most metrics that MLflow takes in one request


def feed_mlflow(uri: str, name: str, run: TrackedRun) -> int:
    """Send the points of a run that the store at ``uri`` lacks, and return how many there were."""
    mlflow = needed("mlflow.tracking", "mlflow", "this is for MLflow")
    entities = needed("mlflow.entities", "mlflow", "this is for MLflow")
    client = mlflow.MlflowClient(tracking_uri=uri)
    experiment = client.get_experiment_by_name(EXPERIMENT)
    home = experiment.experiment_id if experiment else client.create_experiment(EXPERIMENT)
    found = client.search_runs([home], filter_string=f"tags.`{TAG}` = '{run.identity}'")
    target = found[0] if found else client.create_run(home, run_name=name, tags={TAG: run.identity})
    place = target.info.run_id
    for fact, value in run.facts.items():
        client.log_param(place, fact, value)
    sent = {
        (metric.key, metric.step) for key in target.data.metrics for metric in client.get_metric_history(place, key)
    }
    new = [point for point in run.points if (point.name, point.step) not in sent]
    now = int(1000 * time.time())
    for start in range(0, len(new), AT_ONCE):
        part = new[start : start + AT_ONCE]
        client.log_batch(place, [entities.Metric(point.name, point.value, now, point.step) for point in part])
    client.update_run(place, status="FINISHED" if run.finished else "RUNNING")
    return len(new)
