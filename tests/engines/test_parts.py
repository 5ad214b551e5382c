"""Parts of a round: the same bits in one process, in several, and where a part is lost and taken up again."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch
from engine_examples import assert_same_run, helpers_that_answer, small
from torch import nn

from bocl.engines import ray_workers
from bocl.engines.part_process import MOST_LOSSES, PartProcess
from bocl.engines.part_server import PartServer, Subject
from bocl.engines.spread import SpreadTrainer, spread_over
from bocl.errors import InputError, WorkError
from bocl.experiment.run import run
from bocl.methods import parts
from bocl.methods.bocl import BOCL
from bocl.methods.failures import Listener
from bocl.methods.growing import GrowingLearner
from bocl.methods.halving import Halving
from bocl.methods.parts import PartTrainer, PartWork
from bocl.methods.round_trainer import LocalTrainer
from bocl.methods.rounds import Round
from bocl.networks.architectures import mlp
from bocl.networks.expandable import ExpandableNetwork
from bocl.networks.growth import GrowthSettings
from bocl.networks.trace import trace
from bocl.records.events import EpochDone, OutOfMemory, ignore_events
from bocl.tasks.permuted import permuted_digits
from bocl.training.batches import task_to_device
from bocl.training.recipe import Recipe
from bocl.training.steps import StepCache

CPU = torch.device("cpu")
WIDTHS = ((1, 0), (4, 2), (0, 0), (2, 4), (3, 1), (4, 4), (2, 2))


def make_subject(device):
    """Return a network that knows one task, and the samples of the next."""
    network = ExpandableNetwork(trace(mlp(64, [6, 5])), device=device)
    network.commit(network.grow([network.graph.widths], 10, seeds=[0]).growth(0))
    return network, task_to_device(permuted_digits(tasks=2, seed=0)[1], 1, device)


@pytest.fixture(scope="module")
def subject():
    return make_subject("cpu")


def a_round(**changes):
    options = {"reads": ((0,),) * 7, "halving": Halving((1, 2), (4, 2), tuple(range(7))), **changes}
    recipe = options.pop("recipe", Recipe(learning_rate=0.01, batch_size=256, epochs=4))
    return Round("search", 1, 10, WIDTHS, tuple(range(7)), 0, (4, 4), recipe, **options)


def assert_same(one, other):
    for left, right in zip(one, other, strict=True):
        assert (left.failure, left.rungs, left.growth.reads) == (right.failure, right.rungs, right.growth.reads)
        assert repr(left.fit.accuracy) == repr(right.fit.accuracy)  # NaN is not itself
        assert left.growth.tensors.keys() == right.growth.tensors.keys()
        assert all(torch.equal(tensor, right.growth.tensors[name]) for name, tensor in left.growth.tensors.items())


class InThisProcess:
    """A helper without a process: a server that is asked over bytes, and that forgets all when it is told to."""

    def __init__(self, *, lost_after=()):
        self.server, self.asked, self.calls, self.dropped = PartServer(CPU), None, 0, 0
        self.lost_after = lost_after

    def start(self, subject, asked, works):
        self.asked = subject, pickle.loads(pickle.dumps((asked, works)))

    def result(self):
        subject, (asked, works) = self.asked
        if self.calls in self.lost_after:
            self.server = PartServer(CPU)
        self.calls += 1
        if self.server.given != subject.name:
            self.server.give(subject.name, subject.packed())
        return pickle.loads(pickle.dumps(self.server.train(asked, works)))

    def drop(self):
        self.dropped += 1


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("changes", [{}, {"halving": None}], ids=["halved", "whole"])
@pytest.mark.parametrize("average", ["off", "last"])
def test_helpers_train_a_round_to_the_bits_of_one_process(subject, count, changes, average):
    recipe = Recipe(learning_rate=0.01, batch_size=256, epochs=4, average=average)
    asked = a_round(parts=count + 1, recipe=recipe, **changes)
    helpers = [InThisProcess() for _ in range(count)]
    assert_same(LocalTrainer()(asked, *subject), SpreadTrainer(helpers)(asked, *subject))
    assert all(helper.calls for helper in helpers)


def test_a_round_whose_children_read_different_tasks_is_shared_out_too(subject):
    asked = a_round(reads=((0,), (), (0,), (), (0,), (0,), ()))
    assert_same(LocalTrainer()(asked, *subject), SpreadTrainer([InThisProcess()])(asked, *subject))


@pytest.mark.parametrize("lost_after", [(0,), (1,), (2,), (1, 2)])
def test_a_part_that_is_lost_at_a_rung_is_taken_up_by_the_same_steps(subject, lost_after):
    asked = a_round(parts=2)
    whole = LocalTrainer()(asked, *subject)
    assert_same(whole, SpreadTrainer([InThisProcess(lost_after=lost_after)])(asked, *subject))


def test_parts_forget_those_that_do_not_go_on(subject):
    trainer = PartTrainer(a_round(), *subject, StepCache(), Listener(ignore_events))
    first = [PartWork((0, 1), until=1), PartWork((2, 3), until=1)]
    trainer(first)
    assert set(trainer._waiting) == set(first)
    trainer([PartWork((2, 3), ((1, (3,)),), until=2)])
    assert [work.places for work in trainer._waiting] == [(2, 3)]


def raise_for(monkeypatch, wrong, error):
    """Make every part with a child of these widths raise when it is made."""
    real = parts.grow_part

    def grow_part(asked, network, places):
        if wrong in [asked.widths[place] for place in places]:
            raise error
        return real(asked, network, places)

    monkeypatch.setattr(parts, "grow_part", grow_part)


def test_a_child_that_raises_elsewhere_fails_alone(subject, monkeypatch):
    raise_for(monkeypatch, (2, 2), ValueError("a bad\nday"))  # the last child, in the helper's part
    asked = a_round(parts=2)
    children = SpreadTrainer([InThisProcess()])(asked, *subject)
    assert [child.failure for child in children] == [""] * 6 + ["ValueError: a bad day"]
    assert_same(LocalTrainer()(asked, *subject), children)


@pytest.mark.parametrize("wrong", [(1, 0), (2, 2)], ids=["here", "there"])
@pytest.mark.parametrize("error", [InputError("wrong"), WorkError("failed"), UserWarning("slow"), KeyboardInterrupt()])
def test_what_is_no_childs_fault_is_raised_and_helpers_give_up(subject, monkeypatch, wrong, error):
    raise_for(monkeypatch, wrong, error)
    helper = InThisProcess()
    with pytest.raises(type(error)):
        SpreadTrainer([helper])(a_round(parts=2), *subject)
    assert helper.dropped == 1


def test_memory_that_runs_out_elsewhere_halves_the_whole_round(subject, monkeypatch):
    real, events, halved = parts.grow_part, [], []

    def grow_part(asked, network, places):
        if len(places) > 2:
            raise torch.OutOfMemoryError("no more")
        return real(asked, network, places)

    monkeypatch.setattr(parts, "grow_part", grow_part)
    asked = a_round(parts=2)
    children = SpreadTrainer([InThisProcess()])(asked, *subject, events.append, halved.append)
    assert halved == [2]
    assert [event.children_at_once for event in events if isinstance(event, OutOfMemory)] == [2]
    assert_same(LocalTrainer()(a_round(children_at_once=2), *subject), children)


def test_epochs_of_this_process_are_told(subject):
    events = []
    SpreadTrainer([InThisProcess()])(a_round(parts=2, halving=None), *subject, events.append)
    assert [event.done for event in events if isinstance(event, EpochDone)] == [1, 2, 3, 4]


def test_an_actor_that_outlives_the_worker_of_a_run_learns_the_next_worker_s_task(subject, monkeypatch):
    """As after a run's worker was lost: another one takes the run up, and asks the actors that are left."""
    monkeypatch.setattr(ray_workers, "needed", lambda *_: SimpleNamespace(get=lambda packed: packed))
    actor, asked = ray_workers.PartActor("cpu", os.getcwd(), None), a_round(parts=2)

    class Helper(InThisProcess):
        def result(self):
            subject, (asked, works) = self.asked
            return actor.train(subject.name, [subject.packed()], asked, works)

    SpreadTrainer([Helper()])(asked, *subject)
    following = subject[0], task_to_device(permuted_digits(tasks=3, seed=0)[2], 2, "cpu")
    assert_same(LocalTrainer()(asked, *following), SpreadTrainer([Helper()])(asked, *following))


# -- processes -------------------------------------------------------------------------------------


@pytest.fixture
def process():
    made = PartProcess(CPU)
    yield made
    made.close()


def test_a_process_answers_as_this_one_and_after_it_was_killed(subject, process):
    asked = a_round(parts=2)
    whole = LocalTrainer()(asked, *subject)
    trainer = SpreadTrainer([process])
    assert_same(whole, trainer(asked, *subject))
    process._process.kill()
    assert_same(whole, trainer(asked, *subject))  # it was killed while nothing was asked of it
    start, stages = process.start, []

    def start_and_kill(*arguments):
        start(*arguments)
        stages.append(process._process.pid)
        if len(stages) == 2:
            os.kill(process._process.pid, signal.SIGKILL)

    process.start = start_and_kill
    assert_same(whole, trainer(asked, *subject))  # it was killed in the middle of its second stage
    assert len(set(stages)) == 2


def test_a_process_that_always_dies_ends_the_round_with_its_reason(subject, process):
    start, killed = process.start, []

    def start_and_kill(*arguments):
        start(*arguments)
        process._process.kill()
        killed.append(True)

    process.start = start_and_kill
    with pytest.raises(WorkError, match=f"ended {MOST_LOSSES} times: killed by SIGKILL; run the same command again"):
        SpreadTrainer([process])(a_round(parts=2), *subject)
    assert len(killed) == MOST_LOSSES


def test_a_failed_child_of_a_process_is_told_with_its_reason(subject, process):
    process.start(Subject(*subject), a_round(reads=((5,),) * 7), [PartWork((0,))])  # there is no task 5
    (done,) = process.result()
    assert done.failure.startswith("IndexError")


def test_a_network_that_a_process_cannot_take_up_is_told(process):
    process.start(Subject(Module(), None), a_round(), [PartWork((0,))])
    with pytest.raises(WorkError, match=r"cannot be read in another process \(ModuleNotFoundError.*test_parts"):
        process.result()


@pytest.mark.gpu
def test_a_process_that_shares_the_gpu_answers_as_this_one_and_after_it_was_killed():
    subject, asked = make_subject("cuda:0"), a_round(parts=2)
    whole = LocalTrainer()(asked, *subject)
    process = PartProcess(torch.device("cuda:0"))
    try:
        trainer = SpreadTrainer([process])
        assert_same(whole, trainer(asked, *subject))
        process._process.kill()
        assert_same(whole, trainer(asked, *subject))
    finally:
        process.close()


def test_a_process_ends_with_the_one_that_started_it():
    script = (
        "import sys, time, torch\n"
        "from bocl.engines.part_process import PartProcess\n"
        "print(PartProcess(torch.device('cpu'))._process.pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        helper = int(parent.stdout.readline())
        parent.kill()
    for _ in range(600):
        try:
            os.kill(helper, 0)
        except ProcessLookupError:
            return
        signal.sigtimedwait([], 0.1)
    pytest.fail("it lives on")


# -- runs ------------------------------------------------------------------------------------------


def test_a_run_on_three_devices_is_the_run_of_one_process(tmp_path, monkeypatch):
    helpers = helpers_that_answer(monkeypatch)
    config = small("search.parts=3")
    run(config, tmp_path / "here", device="cpu")
    with spread_over([CPU] * 3, config) as trainer:
        run(config, tmp_path / "there", device="cpu", trainer=trainer)
    assert len(set(helpers)) == 2
    assert_same_run(tmp_path / "here", tmp_path / "there")


class Module(nn.Module):
    """A module that low-rank growth adapts."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU())
        self.head = nn.Linear(16, 4)

    def forward(self, x):
        return self.head(self.body(x))


def test_factors_of_a_given_module_are_trained_elsewhere_too():
    torch.manual_seed(0)
    learner = BOCL(
        Module(), pretrained=True, growth=GrowthSettings(form="low-rank"), recipe=Recipe(epochs=2), device="cpu"
    )
    stream = permuted_digits(tasks=2, seed=0)
    learner.learn(stream[0])
    assert isinstance(learner, GrowingLearner)
    network, data = learner.network, task_to_device(stream[1], 1, "cpu")
    ranks = [tuple(1 + (place + group) % 2 for group in range(len(network.graph.groups))) for place in range(3)]
    most = tuple(max(rank) for rank in zip(*ranks, strict=True))
    asked = Round("search", 1, 10, tuple(ranks), (1, 2, 3), 0, most, Recipe(epochs=2), ((),) * 3, parts=2)
    assert_same(LocalTrainer()(asked, network, data), SpreadTrainer([InThisProcess()])(asked, network, data))


def test_a_module_that_cannot_be_sent_is_told():
    class Local(nn.Module):
        pass

    with pytest.raises(WorkError, match=r"the network cannot be sent to other processes \(.*Local.*\); use one device"):
        Subject(Local(), None).packed()
