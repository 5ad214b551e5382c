"""Fixtures for every room."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from gpu_record import GpuTests


def pytest_configure(config: pytest.Config) -> None:
    """Look after the tests that need a GPU."""
    config.pluginmanager.register(GpuTests())


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test whose extras are not installed; where all of these tests are asked for, it fails."""
    for marker in item.iter_markers():
        modules = {"extras": marker.args, "avalanche": ("avalanche",), "clusters": ("ray", "submitit")}.get(
            marker.name, ()
        )
        missing = [module for module in modules if find_spec(module) is None]
        if missing:
            told = pytest.fail if item.config.option.markexpr == marker.name else pytest.skip
            told(f"{', '.join(missing)} is not installed; make test-{marker.name} installs it")


@pytest.fixture(scope="session")
def real_data() -> Path:
    """Return the folder of the published MNIST and CIFAR-100 files, or skip."""
    folder = os.environ.get("BOCL_DATA")
    if not folder:
        pytest.skip("BOCL_DATA is not set: it names the folder of the published MNIST and CIFAR-100 files")
    path = Path(folder)
    for place in ("MNIST/raw/train-images-idx3-ubyte.gz", "cifar-100-binary/train.bin"):
        if not (path / place).is_file():
            pytest.skip(f"BOCL_DATA is {folder}, which has no {place}")
    return path


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    """Use one thread: the tensors of tests are too small to share out, and two workers share the cores."""
    import torch

    torch.set_num_threads(1)


@pytest.fixture
def two_threads() -> Iterator[None]:
    """Use two threads in one test."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session", autouse=True)
def interruptible() -> None:
    """Hear Ctrl-C: a suite that is started in the background inherits that it is ignored."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def bocl(monkeypatch, capsys, tmp_path):
    """Call the command line in an empty folder; return (exit code, standard output, standard error)."""
    from bocl.cli.main import main

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")

    def call(*words):
        monkeypatch.setattr(sys, "argv", ["bocl", *map(str, words)])
        monkeypatch.setattr(sys, "path", list(sys.path))
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capsys.readouterr()
        return ended.value.code or 0, out, err

    return call
