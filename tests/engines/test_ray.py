"""Runs on a Ray cluster of several nodes: the same bits as in one process, whatever dies meanwhile."""

from __future__ import annotations

import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest
from engine_examples import (
    LONG,
    SMALL,
    StoppedHere,
    assert_same_run,
    make,
    make_whole,
    order,
    rounds,
    small,
    soon,
    stop_after,
    tensors,
)

from bocl.engines.orders import RunOrder
from bocl.engines.shared_arrays import LARGE
from bocl.errors import InputError, WorkError
from bocl.experiment.provenance import versions
from bocl.experiment.run import run
from bocl.records.journal import read
from bocl.records.run_log import JOURNAL
from test_docs import ROOT, run_transcripts

pytestmark = [
    pytest.mark.clusters,
    pytest.mark.usefixtures("disconnected"),
    pytest.mark.filterwarnings("ignore:.*:DeprecationWarning", "ignore:.*:FutureWarning", "ignore::ResourceWarning"),
]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """Start Ray once: a head without room for work, and two nodes with room for one worker each."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_TMPDIR", tempfile.gettempdir())  # the path of a socket is short
        patch.setenv("TMPDIR", str(tmp_path_factory.mktemp("of-nodes")))
        from ray.cluster_utils import Cluster

        quick = {"health_check_period_ms": 500, "health_check_failure_threshold": 2}  # to see that a node is gone
        head = {"num_cpus": 0, "include_dashboard": False, "_system_config": quick}
        made = Cluster(initialize_head=True, head_node_args=head)
        made.folder = Path(os.environ["TMPDIR"])
        for _ in range(2):
            add_node(made)
        yield made
        made.shutdown()


def add_node(cluster):
    cluster.add_node(num_cpus=1, object_store_memory=100_000_000)
    cluster.wait_for_nodes()


@pytest.fixture
def ray(cluster, monkeypatch):
    """Return an engine with two workers, which notes what it tells."""
    from bocl.engines import ray_engine

    monkeypatch.setattr(ray_engine, "START_UP", 120.0)  # on a machine that has other work
    engine = ray_engine.RayCluster(cluster.address, "cpu", None, tell=lambda line: engine.told.append(line))
    engine.told = []
    return engine


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return make_whole(tmp_path_factory.mktemp("whole"), seed_0="seed=0", seed_1="seed=1", parts="search.parts=2")


@pytest.fixture(scope="module")
def long(tmp_path_factory):
    return make_whole(tmp_path_factory.mktemp("long"), LONG, seed_0="seed=0", seed_1="seed=1")


def worker_pids(cluster) -> list[int]:
    """Return the processes of a cluster that make runs or train parts, as Ray names them."""
    found, port = [], cluster.address[cluster.address.rindex(":") :].encode()
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if (place / "cmdline").read_bytes().startswith((b"ray::RunWorker.make", b"ray::PartActor.train")):
                parent = (place / "stat").read_text().rpartition(") ")[2].split()[1]
                if port in (Path("/proc") / parent / "cmdline").read_bytes():
                    found.append(int(place.name))
    return found


def test_runs_on_two_nodes_are_those_of_one_process(ray, tmp_path, whole):
    from bocl.engines.ray_workers import RunWorker

    (tmp_path / "begun").mkdir()

    class OneOfTwo(RunWorker):
        def make(self, *arguments):
            (tmp_path / "begun" / self._node()).touch()
            while len(list((tmp_path / "begun").iterdir())) < 2:
                time.sleep(0.05)
            yield from super().make(*arguments)

        def _node(self):
            from ray import get_runtime_context

            return get_runtime_context().get_node_id()

    ray.run_worker = OneOfTwo
    assert ray.workers == 2
    orders = [order(tmp_path / f"seed_{seed}", f"seed={seed}") for seed in (0, 1)]
    assert make(ray, orders) == {"seed_0": "", "seed_1": ""}
    for seed in (0, 1):
        assert_same_run(tmp_path / f"seed_{seed}", whole / f"seed_{seed}")


def noting(kind, place):
    """Return a kind of actor that notes its nodes, and one that trains parts also waits in its second task, if told."""
    from bocl.engines.ray_workers import PartActor

    class Noting(kind):
        def __init__(self, *arguments):
            from ray import get_runtime_context

            super().__init__(*arguments)
            (place / f"node-of-{kind.__name__}").write_text(get_runtime_context().get_node_id())

    class Waiting(Noting):
        def train(self, name, boxed, asked, works):
            (place / f"trained-{asked.task}").touch()
            while asked.task >= 1 and (place / "wait").exists():
                (place / "waits").touch()
                time.sleep(0.05)
            return super().train(name, boxed, asked, works)

    return Waiting if kind is PartActor else Noting


@pytest.fixture
def noted(ray, tmp_path):
    """Let actors note what they do in a folder; return it."""
    ray.run_worker, ray.part_actor = noting(ray.run_worker, tmp_path), noting(ray.part_actor, tmp_path)
    return tmp_path


def test_a_run_s_rounds_are_split_over_two_nodes(ray, noted, whole):
    assert make(ray, [order(noted / "parts", "search.parts=2")]) == {"parts": ""}
    assert_same_run(noted / "parts", whole / "parts")
    assert (noted / "node-of-RunWorker").read_text() != (noted / "node-of-PartActor").read_text()
    assert {path.name for path in noted.glob("trained-*")} == {"trained-1", "trained-2"}  # the first has no search
    assert ray.told == []


@pytest.mark.parametrize("whose", ["RunWorker", "PartActor"])
def test_a_node_that_goes_in_the_middle_of_a_round_costs_that_round(cluster, ray, noted, whole, whose):
    """Of the run's worker: the next one asks the helper that is left, which knew another task. Or of the helper."""
    (noted / "wait").touch()

    def remove():
        soon((noted / "waits").exists)
        gone = (noted / f"node-of-{whose}").read_text()
        cluster.remove_node(next(node for node in cluster.worker_nodes if node.node_id == gone), allow_graceful=False)
        (noted / "wait").unlink()

    add_node(cluster)  # one to spare
    remover = threading.Thread(target=remove)
    remover.start()
    try:
        assert make(ray, [order(noted / "parts", "search.parts=2")]) == {"parts": ""}
    finally:
        remover.join()
    sessions = [record for record in read(noted / "parts" / JOURNAL) if record["kind"] == "start"]
    assert len(sessions) == (2 if whose == "RunWorker" else 1)
    assert_same_run(noted / "parts", whole / "parts")


def test_runs_of_a_node_that_goes_go_on_elsewhere(cluster, ray, noted, long):
    names = ["seed_0", "seed_1"]

    def remove():
        soon(lambda: all(rounds(noted / name) >= 1 for name in names))
        gone = (noted / "node-of-RunWorker").read_text()
        cluster.remove_node(next(node for node in cluster.worker_nodes if node.node_id == gone), allow_graceful=False)

    remover = threading.Thread(target=remove)
    remover.start()
    try:
        assert make(ray, [order(noted / name, LONG, f"seed={name[-1]}") for name in names]) == dict.fromkeys(names, "")
    finally:
        remover.join()
        add_node(cluster)
    journals = [read(noted / name / JOURNAL) for name in names]
    assert 2 in [sum(record["kind"] == "start" for record in journal) for journal in journals]
    for name in names:
        assert_same_run(noted / name, long / name)


def test_a_run_begins_with_what_is_free_and_waits_for_the_first_only(ray, tmp_path, whole, monkeypatch):
    """Two runs that both waited for more, and held what they had, would wait for ever."""
    from bocl.engines import ray_engine

    monkeypatch.setattr(ray_engine, "START_UP", 5.0)
    others = [ray._ray.remote(num_cpus=1)(type("Other", (), {"here": lambda _: None})).remote() for _ in range(2)]
    ray._ray.get([other.here.remote() for other in others])

    def leave():
        soon(lambda: ray.told)
        ray._ray.kill(others[0])

    leaver = threading.Thread(target=leave)
    leaver.start()
    assert make(ray, [order(tmp_path / "parts", "search.parts=2")]) == {"parts": ""}
    leaver.join()
    assert ray.told[0] == "waiting for a free CPU of the cluster"
    assert ray.told[-1] == "1 of 2 workers train this run: no CPU of the cluster is free"
    assert_same_run(tmp_path / "parts", whole / "parts")


def test_helpers_that_are_in_the_way_of_a_run_give_it_their_place(ray, monkeypatch):
    """As after a node was lost: those that are left hold all there is."""
    from bocl.engines import ray_engine

    monkeypatch.setattr(ray_engine, "START_UP", 5.0)
    helpers = [ray._start(ray.part_actor, None) for _ in range(2)]
    for helper in helpers:
        ray._told(helper.about.remote().future())
    ray._hire()
    ray._wait_for_worker(helpers)
    assert len(helpers) < 2


def test_a_node_that_is_of_no_use_is_left_out(ray, tmp_path):
    """Of two nodes one has another version: two runs are made on the other, and one run has no helper."""
    from bocl.engines.ray_workers import PartActor, RunWorker

    class First(RunWorker):
        def about(self):
            try:
                (tmp_path / "first").touch(exist_ok=False)
            except FileExistsError:
                return super().about()
            return old(super().about())

    class Old(PartActor):
        def about(self):
            return old(super().about())

    def old(found):
        return type(found)(found.node, found.device, {**found.versions, "torch": "1.0"})

    ray.run_worker, ray.part_actor = First, Old
    orders = [order(tmp_path / f"seed_{seed}", "method=sn", "stream.tasks=1", f"seed={seed}") for seed in (0, 1)]
    assert make(ray, orders) == {"seed_0": "", "seed_1": ""}
    (told,) = ray.told
    assert re.fullmatch(r"1 worker left: .* has torch 1\.0, and this machine .*; install the same on all", told)


def test_a_helper_that_is_of_no_use_is_left_out(ray, tmp_path):
    from bocl.engines.ray_workers import PartActor

    class Weak(PartActor):
        def __init__(self, *_):
            raise RuntimeError("no room")

    ray.part_actor = Weak
    assert make(ray, [order(tmp_path / "run", "search.parts=2", "stream.tasks=2")]) == {"run": ""}
    (told,) = ray.told
    assert told.startswith("1 of 2 workers train this run: a worker could not start: ")


def test_what_is_in_the_folder_of_the_command_is_found_on_nodes_that_have_it(bocl, ray, tmp_path, whole, monkeypatch):
    (tmp_path / "of_this_folder.py").write_text("from bocl.networks.architectures import mlp as network")
    monkeypatch.chdir(tmp_path)
    assert bocl("trials", str(whole / "seed_0"), "-o", "trials.json")[0] == 0
    settings = ["network.build='of_this_folder:network'", "prior_trials=trials.json"]
    assert make(ray, [order(Path("run"), "stream.tasks=2", "search.parts=2", *settings)]) == {"run": ""}
    assert ray.told == []


def test_a_module_that_exits_ends_its_run_only(tmp_path, monkeypatch):
    from bocl.engines import ray_workers

    def leave(*_, **__):
        raise SystemExit(3)

    monkeypatch.setattr(ray_workers, "unpack", lambda *_: None)
    monkeypatch.setattr(ray_workers, "carry_out", leave)
    worker = ray_workers.RunWorker("cpu", str(tmp_path))
    (said,) = worker.make(order(tmp_path / "run"), {}, None, [])
    assert said.error.startswith("SystemExit: 3 (on ")


def test_a_run_is_resumed_on_another_engine(ray, tmp_path, whole):
    with pytest.raises(StoppedHere):
        run(small("seed=0"), tmp_path / "seed_0", device="cpu", callback=stop_after(2))
    assert len(tensors(tmp_path / "seed_0")) > 0
    assert make(ray, [order(tmp_path / "seed_0", "seed=0")]) == {"seed_0": ""}
    assert_same_run(tmp_path / "seed_0", whole / "seed_0")


def test_a_study_that_was_begun_here_goes_on_in_a_cluster(bocl, cluster, tmp_path, whole):
    (tmp_path / "study.toml").write_text('on = ["digits"]\nseeds = [0, 1]\n[[run]]')
    with pytest.raises(StoppedHere):
        run(small("seed=0"), tmp_path / "work/digits/bocl/bocl-seed0", device="cpu", callback=stop_after(2))
    words = ["study", "study.toml", "--out", "work", "--records", "records"]
    words += [word for setting in SMALL for word in ("--set", setting)]
    code, out, err = bocl(*words, "--engine", "ray", "--address", cluster.address)
    assert code == 0, err
    assert len(out.splitlines()) == 2
    for seed in (0, 1):
        assert f"digits  bocl  seed {seed}  ACC " in out
        assert_same_run(tmp_path / f"work/digits/bocl/bocl-seed{seed}", whole / f"seed_{seed}")
    assert bocl(*words)[1] == "2 of 2 runs already in records\n"


def test_the_commands_of_the_guide_run(cluster, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RAY_ADDRESS", cluster.address)
    assert run_transcripts(ROOT / "docs/guides/many-runs.md", "ray") == 1
    assert len(list((tmp_path / "runs/ray").rglob(JOURNAL))) == 2


def test_a_worker_that_is_killed_costs_its_round(cluster, ray, tmp_path, long):
    killed = []

    def kill():
        soon(lambda: rounds(tmp_path / "seed_0") >= 1 and worker_pids(cluster))
        killed.extend(worker_pids(cluster)[:1])
        os.kill(killed[0], signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    assert make(ray, [order(tmp_path / "seed_0", LONG, "seed=0")]) == {"seed_0": ""}
    killer.join()
    assert killed
    sessions = [record for record in read(tmp_path / "seed_0" / JOURNAL) if record["kind"] == "start"]
    assert len(sessions) == 2
    assert_same_run(tmp_path / "seed_0", long / "seed_0")


STUDY = """
import sys
from pathlib import Path
from engine_examples import LONG, small
from bocl.engines.orders import RunOrder
from bocl.engines.ray_engine import RayCluster

if __name__ == "__main__":
    folder = Path(sys.argv[1])
    RayCluster(sys.argv[2], "cpu", None)([RunOrder.of("seed_0", small(LONG, "seed=0"), folder)], print)
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_driver_that_is_killed_and_started_again_goes_on(cluster, tmp_path, long, how):
    (tmp_path / "drive.py").write_text(STUDY)
    words = [sys.executable, str(tmp_path / "drive.py"), str(tmp_path / "seed_0"), cluster.address]
    paths = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    options = {"env": {**os.environ, "PYTHONPATH": paths}, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(words, **options) as driver:
        soon(lambda: rounds(tmp_path / "seed_0") >= 1)
        assert len(list(cluster.folder.glob("bocl-*"))) == 1
        driver.send_signal(how)
    at_first = rounds(tmp_path / "seed_0")
    soon(lambda: not worker_pids(cluster))  # no run outlives who asked for it
    soon(lambda: not list(cluster.folder.glob("bocl-*")))  # nor does what it wrote on the node
    subprocess.run(words, check=True, **options)
    assert at_first < rounds(tmp_path / "seed_0")
    assert_same_run(tmp_path / "seed_0", long / "seed_0")


def test_what_is_wrong_with_a_run_is_told_once(ray, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "mine.txt").write_text("not a run")
    bad = RunOrder.of("bad", small("stream.name=permuted-mnist"), tmp_path / "bad", data=str(tmp_path))
    ended = make(ray, [order(tmp_path / "mine"), bad, order(tmp_path / "good", "stream.tasks=1")])
    assert ended["good"] == ""
    assert "is not a run" in ended["mine"]
    assert "train-images-idx3-ubyte.gz" in ended["bad"]
    assert (tmp_path / "mine" / "mine.txt").read_text() == "not a run"
    assert len(list((tmp_path / "mine").iterdir())) == 1


def test_a_node_without_the_files_of_a_user_s_stream_is_named(cluster, tmp_path):
    """The files are at this machine when the work is planned, and gone when a node reads them."""
    from bocl.engines.ray_engine import RayCluster

    own = tmp_path / "own"
    own.mkdir()
    for name in ("a.csv", "b.csv"):
        (own / name).write_text("x,y,label\n" + "".join(f"{n},{-n},{n % 2}\n" for n in range(60)))
    config = small(f"stream.name={own}", "stream.tasks=2", "network.arguments={inputs = 2, hidden = [4]}")
    engine = RayCluster(cluster.address, "cpu", 1)
    engine._stream(wanted := RunOrder.of("own", config, tmp_path / "run"))
    shutil.rmtree(own)
    ended = make(engine, [wanted])
    assert "a.csv" in ended["own"]
    assert "(on " in ended["own"]


def test_a_disk_that_is_full_on_a_node_loses_nothing(ray, tmp_path, whole):
    """Files of the worker may have 20 kB: enough for two tasks, not for the children of the third."""
    from bocl.engines.ray_workers import RunWorker

    class Cramped(RunWorker):
        def make(self, *arguments):
            resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            yield from super().make(*arguments)

    ray.run_worker = Cramped
    ended = make(ray, [order(tmp_path / "seed_0", "seed=0")])
    assert "cannot be written" in ended["seed_0"]
    assert str(tmp_path / "seed_0") in ended["seed_0"]
    run(small("seed=0"), tmp_path / "seed_0", device="cpu")
    assert_same_run(tmp_path / "seed_0", whole / "seed_0")


@pytest.mark.parametrize("times", [1, 9])
def test_workers_that_cannot_start_are_replaced_a_few_times(ray, tmp_path, times):
    from bocl.engines.ray_workers import RunWorker

    (tmp_path / "starts").mkdir()

    class Weak(RunWorker):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            before = len(list((tmp_path / "starts").iterdir()))
            if before < times:
                (tmp_path / "starts" / str(before)).touch()
                os._exit(1)

    ray.run_worker = Weak
    wanted = order(tmp_path / "run", "method=sn", "stream.tasks=1")
    if times == 1:
        assert make(ray, [wanted]) == {"run": ""}
    else:
        with pytest.raises(WorkError, match="a worker could not start: "):
            make(ray, [wanted])
        assert len(list((tmp_path / "starts").iterdir())) == 3


def test_what_a_cluster_has_not_is_refused(cluster):
    from bocl.engines.ray_engine import RayCluster

    with pytest.raises(InputError, match="--workers 9: the cluster has 2 CPUs; ask for no more than it has"):
        RayCluster(cluster.address, "cpu", 9)
    with pytest.raises(InputError, match="--device cuda: the cluster has 0 GPUs"):
        RayCluster(cluster.address, "cuda", None)
    with pytest.raises(InputError, match="--device cuda:1: Ray says which GPU a worker has"):
        RayCluster(cluster.address, "cuda:1", None)


def test_nodes_of_different_types_are_refused_unless_they_are_allowed(cluster):
    from bocl.engines.ray_engine import RayCluster
    from bocl.engines.ray_workers import About

    nodes = [About("one", "A GPU", versions()), About("two", "Another GPU", versions())]
    engine = RayCluster(cluster.address, "cpu", None)
    engine._check(nodes[0])
    with pytest.raises(InputError, match=r"one has A GPU, and two Another GPU, .* allow it with --mixed-devices"):
        engine._check(nodes[1])
    engine._mixed = True
    engine._check(nodes[1])


def test_runs_of_the_same_tasks_share_them(ray, tmp_path):
    settings = {"one": (), "two": ("method=sn",), "three": ("stream.tasks=2",)}
    orders = [order(tmp_path / name, *overrides) for name, overrides in settings.items()]
    one, two, three = map(ray._stream, orders)
    assert one is two is not three
    assert one.large == three.large != []  # its tasks are made of the same samples
    assert len(three.rest) < LARGE


def test_a_node_with_other_versions_is_refused(cluster, tmp_path, monkeypatch):
    from bocl.engines import ray_engine

    ours = {**ray_engine.versions(), "torch": "1.0"}
    monkeypatch.setattr(ray_engine, "versions", lambda: ours)
    engine = ray_engine.RayCluster(cluster.address, "cpu", None)
    with pytest.raises(InputError, match=r"has torch .*, and this machine 1\.0; install the same on all"):
        make(engine, [order(tmp_path / "seed_0", "seed=0")])
