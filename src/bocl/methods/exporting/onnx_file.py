"""Tasks as one ONNX file: one task, or all of a learner with the task as an input.

    session = onnxruntime.InferenceSession("spring.onnx")
    (logits,) = session.run(None, {"x": samples})
    (logits,) = session.run(None, {"x": samples, "task": np.array(2)})      of all tasks

Of all tasks, only the one that is asked for is computed: the file branches on its number, halving what is left. What
several tasks compute with alike, such as a frozen backbone, is stored once.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from io import StringIO
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bocl.errors import InputError
from bocl.extras import needed
from bocl.methods.exporting.pt2_file import TOKENIZER, about_samples, cannot, quiet, traced
from bocl.methods.task_network import TaskNetwork

_MOST_BYTES = 2**31 - 1  # of one file of this kind
_ROOM = 1 << 24  # for all that is no tensor
_WHY = "a task is exported as onnx"


def onnx_of_one(network: TaskNetwork) -> bytes:
    """Return the file of one task on the CPU."""
    _check_size([network])
    model = _model(network)
    _tell(model, about_samples(network), network)
    return _bytes_of(model)


def onnx_of_all(networks: Sequence[TaskNetwork]) -> bytes:
    """Return one file for several tasks, whose number, from 0, is the input ``task``."""
    onnx: Any = needed("onnx", "onnx", _WHY)
    _check_size(networks)
    helper = onnx.helper
    stored: dict[str, Any] = {}  # by content
    branches: list[Any] = []
    versions: dict[str, int] = {}
    for number, network in enumerate(networks):
        model = needed("onnx.compose", "onnx", _WHY).add_prefix(_model(network), f"task {number}/", rename_inputs=False)
        versions |= {entry.domain: entry.version for entry in model.opset_import}
        _share(model.graph, stored)
        branches.append(model.graph)
    # A number that is no task's ends in an error here, instead of another task's answer.
    tables = {"tasks": np.arange(len(networks)), "none": np.array(len(networks)), "zero": np.array(0)}
    number_nodes = [
        helper.make_node("Less", ["task", "zero"], ["below"]),
        helper.make_node("Where", ["below", "none", "task"], ["asked"]),
        helper.make_node("Gather", ["tasks", "asked"], ["number"], axis=0),
    ]
    nodes, result = _choice(onnx, branches, 0)
    last = helper.make_node("Identity", [result], ["logits"])
    inputs = [branches[0].input[0], helper.make_tensor_value_info("task", onnx.TensorProto.INT64, [])]
    out = helper.make_tensor_value_info("logits", onnx.TensorProto.FLOAT, ["batch", None])
    constants = [onnx.numpy_helper.from_array(values, name) for name, values in tables.items()]
    graph = helper.make_graph([*number_nodes, *nodes, last], "tasks", inputs, [out], [*constants, *stored.values()])
    opsets = [helper.make_opsetid(domain, version) for domain, version in versions.items()]
    whole = helper.make_model(graph, opset_imports=opsets, ir_version=model.ir_version)
    _tell(whole, {"tasks": [about_samples(network) for network in networks]}, networks[0])
    onnx.checker.check_model(whole)
    return _bytes_of(whole)


def run_onnx(data: bytes) -> Callable[..., Tensor]:
    """Return what a file computes: (samples) → logits, or (samples, task) where it holds all tasks."""
    runtime: Any = needed("onnxruntime", "onnx", "an exported file is checked")
    options = runtime.SessionOptions()
    options.log_severity_level = 3  # errors
    session = runtime.InferenceSession(data, options, providers=["CPUExecutionProvider"])

    def compute(samples: Tensor, task: int | None = None) -> Tensor:
        inputs = {"x": samples.numpy()} | ({} if task is None else {"task": np.array(task)})
        return torch.from_numpy(session.run(None, inputs)[0])

    return compute


def _model(network: TaskNetwork) -> Any:
    """Return one task as an ONNX model with the input ``x`` and the output ``logits``."""
    for module in ("onnx", "onnxscript", "onnxruntime"):
        needed(module, "onnx", _WHY)
    with quiet(), redirect_stdout(StringIO()):
        program = traced(network, "onnx")
        try:
            exported = torch.onnx.export(
                program, (), input_names=["x"], output_names=["logits"], dynamo=True, external_data=False, verbose=False
            )
        except Exception as error:  # an operation that ONNX does not have
            raise cannot(network, "onnx", error) from error
    assert exported is not None
    model = exported.model_proto
    del model.graph.value_info[:]
    for value in (*model.graph.input, *model.graph.output):  # or else it is called s77
        value.type.tensor_type.shape.dim[0].dim_param = "batch"
    for node in model.graph.node:  # which says where our files lie
        del node.metadata_props[:]
        node.doc_string = ""
    return model


def _tell(model: Any, facts: dict[str, Any], network: TaskNetwork) -> None:
    """Put what people must know into a model's metadata, and the tokenizer, which is the same for all tasks."""
    del model.metadata_props[:]
    told = {"bocl": json.dumps(facts)}
    if network.text is not None:
        told[TOKENIZER] = network.text.tokenizer
    for key, value in told.items():
        entry = model.metadata_props.add()
        entry.key, entry.value = key, value


def _check_size(networks: Sequence[TaskNetwork]) -> None:
    """Refuse what one file cannot hold; what several tasks compute with alike counts once."""
    sizes = {}
    for network in networks:
        for tensor in network.state_dict().values():
            content = tensor.detach().reshape(-1).view(torch.uint8).numpy()
            sizes[hashlib.sha256(content.data).hexdigest()] = content.nbytes
    if sum(sizes.values()) > _MOST_BYTES - _ROOM:
        raise InputError(
            f"the ONNX file would have {sum(sizes.values()):,} bytes of tensors, and the format holds "
            f"{_MOST_BYTES:,}; export single tasks, or as safetensors"
        )


def _bytes_of(model: Any) -> bytes:
    data: bytes = model.SerializeToString(deterministic=True)
    return data


def _share(graph: Any, stored: dict[str, Any]) -> None:
    """Move a graph's tensors to those that are stored once for all tasks."""
    names: dict[str, str] = {}
    for tensor in graph.initializer:
        name = tensor.name
        tensor.name = ""
        content = hashlib.sha256(tensor.SerializeToString(deterministic=True)).hexdigest()
        tensor.name = name
        names[name] = stored.setdefault(content, tensor).name
    del graph.initializer[:]
    for node in graph.node:
        for place, name in enumerate(node.input):
            node.input[place] = names.get(name, name)


def _choice(onnx: Any, branches: Sequence[Any], first: int) -> tuple[list[Any], str]:
    """Return nodes that compute the branch ``number`` says, and the name of their result; ``first`` is its number."""
    helper = onnx.helper
    if len(branches) == 1:
        return list(branches[0].node), branches[0].output[0].name
    middle = len(branches) // 2
    name = f"choice {first} to {first + len(branches) - 1}"
    sides = []
    for side, begin in ((branches[:middle], first), (branches[middle:], first + middle)):
        nodes, result = _choice(onnx, side, begin)
        out = helper.make_tensor_value_info(result, onnx.TensorProto.FLOAT, ["batch", None])
        sides.append(helper.make_graph(nodes, f"{name}: from {begin}", [], [out]))
    bound = helper.make_node(
        "Constant", [], [f"{name}/bound"], value=onnx.numpy_helper.from_array(np.array(first + middle))
    )
    before = helper.make_node("Less", ["number", f"{name}/bound"], [f"{name}/before"])
    chosen = helper.make_node("If", [f"{name}/before"], [name], then_branch=sides[0], else_branch=sides[1])
    return [bound, before, chosen], name
