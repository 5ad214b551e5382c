"""``bocl track``: show runs in TensorBoard or MLflow."""

from __future__ import annotations

from typing import Annotated

import typer

PAUSE = 5.0  # seconds between two looks at a run


def track_command(
    run: Annotated[str, typer.Argument(metavar="RUN", help="Folder of a run, or of several.")],
    tensorboard: Annotated[str | None, typer.Option(metavar="FOLDER", help="Folder of TensorBoard's logs.")] = None,
    mlflow: Annotated[str | None, typer.Option(metavar="URI", help="Tracking URI: http://…, sqlite:///….")] = None,
    follow: Annotated[bool, typer.Option("--follow", help="Go on until Ctrl-C, as the run does.")] = False,
) -> None:
    """Feed what runs have recorded to TensorBoard or MLflow; call it again to add what is new."""
    import time

    from bocl.cli.printing import say, warn
    from bocl.errors import WorkError
    from bocl.tracking.track import track
    from bocl.wording import counted

    while True:
        try:
            new = track(run, tensorboard=tensorboard, mlflow=mlflow)
            if new or not follow:
                say(f"{run}: {counted(new, 'new value')}")
        except WorkError as error:
            if not follow:
                raise
            warn(str(error))
        if not follow:
            return
        time.sleep(PAUSE)
