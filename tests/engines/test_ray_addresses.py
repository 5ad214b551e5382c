"""Ray at addresses where it is not, or lets nobody in. They need no cluster of ``test_ray``, so they run beside it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from engine_examples import rounds

from bocl.errors import InputError
from bocl.records.run_log import JOURNAL

pytestmark = [
    pytest.mark.clusters,
    pytest.mark.usefixtures("disconnected"),
    pytest.mark.filterwarnings("ignore:.*:DeprecationWarning", "ignore:.*:FutureWarning", "ignore::ResourceWarning"),
]


OWN_CLUSTER = """
import sys
from pathlib import Path
from engine_examples import small
from bocl.engines.orders import RunOrder
from bocl.engines.ray_engine import RayCluster

if __name__ == "__main__":
    engine = RayCluster(None, "cpu", 1)
    print(engine._ray.get_runtime_context().gcs_address, flush=True)
    sys.stdin.readline()
    engine([RunOrder.of("run", small("method=sn", "stream.tasks=1"), Path(sys.argv[1]))], lambda _, error: print(error))
"""


def test_a_cluster_that_is_started_for_one_command_lets_nobody_else_in(tmp_path, capfd):
    from bocl.engines.ray_engine import RayCluster

    (tmp_path / "own.py").write_text(OWN_CLUSTER)
    paths = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    words = [sys.executable, str(tmp_path / "own.py"), str(tmp_path / "run")]
    options = {"env": {**os.environ, "PYTHONPATH": paths}, "stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(words, text=True, stderr=subprocess.DEVNULL, **options) as owner:
        address = owner.stdout.readline().strip()
        with pytest.raises(InputError, match=f"--address {address}: this Ray cluster lets in who has its token; set"):
            RayCluster(address, "cpu", None)
        assert capfd.readouterr().err == ""
        assert owner.communicate("\n")[0] == "\n"
    assert rounds(tmp_path / "run") == 0
    assert (tmp_path / "run" / JOURNAL).is_file()


@pytest.mark.parametrize("address", ["127.0.0.1:1", "nowhere", "ray://127.0.0.1:1", "127.0.0.1:x"])
def test_a_wrong_address_is_refused_in_one_line(address):
    from bocl.engines.ray_engine import RayCluster

    with pytest.raises(InputError, match=r"Ray cannot be reached or started: .*`ray start --head`") as refused:
        RayCluster(address, "cpu", None)
    assert str(refused.value).startswith(f"--address {address}: ")
    assert "\n" not in str(refused.value)


def test_a_port_of_something_else_is_refused():
    """Such as that of Ray's dashboard, which is printed beside the right one."""
    from bocl.engines.ray_engine import RayCluster

    with HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as other:
        threading.Thread(target=other.serve_forever).start()
        with pytest.raises(InputError, match="what answers there is not a Ray cluster"):
            RayCluster(f"127.0.0.1:{other.server_port}", "cpu", None)
        other.shutdown()
