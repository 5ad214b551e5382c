"""A folder in the convention of the Hugging Face Hub: what its config and its model card say."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from bocl.methods.exporting.program import facts_of
from bocl.methods.exporting.single_file import facts_of_single
from bocl.methods.method import Learner
from bocl.methods.seen import SeenTask
from bocl.version import __version__
from bocl.wording import counted, percent

TENSORS, PROGRAM, CONFIG = "model.safetensors", "model.pt2", "config.json"


@dataclass(frozen=True)
class Recorded:
    """What the journal of a run says of a task, and the audit that found it true.

    accuracy    on the task's test samples when all tasks were learnt
    learnt      the same right after the task was learnt
    validation  on its validation samples
    stream      name of the stream; data: its fingerprint
    head        hash of the journal's last line
    tensors     how many have the hash recorded
    canaries    how far stored logits are from those computed now
    made_by     versions of the session that learnt the task
    time        when that session began
    """

    accuracy: float
    learnt: float
    validation: float
    stream: str
    data: str
    head: str
    records: int
    tensors: int | None
    canaries: float | None
    made_by: Mapping[str, str]
    time: str
    seed: int


def config(learner: Learner, number: int) -> str:
    """Return what identifies the model for whoever lists folders: as in its tensors' file."""
    facts = facts_of_single(learner, number, learner.network.single_task(number))
    facts = {name: facts[name] for name in ("format", "kind", "graph", "growth", "facts")}
    about = facts_of(learner.module(number))
    return json.dumps({"library_name": "bocl", "bocl_version": __version__, **about, **facts}, indent=1) + "\n"


def card(learner: Learner, number: int, recorded: Recorded | None, sizes: Mapping[str, int]) -> str:
    """Return the model card of one task: YAML for the Hub's lists, then Markdown for people."""
    about = learner.seen[number]
    lines = [*_front(learner, about, recorded), "", f"# {_plain(about.name)}", ""]
    lines += [
        f"Task {number + 1} of the {len(learner.seen)} that a learner of the library bocl has learnt one after "
        f"another, by the method `{learner.name}`. This folder holds all that the task uses, and nothing else.",
        "",
        "## Use it",
        "",
        *_use(about),
        "",
        "## Samples and classes",
        "",
        *_samples(learner, about),
        "",
        "## Size",
        "",
        "| file | bytes |",
        "|---|---|",
        *(f"| `{name}` | {size:,} |" for name, size in sorted(sizes.items())),
        "",
        *_size(learner, number),
        "",
        "## Accuracy",
        "",
        *(
            _accuracy(recorded)
            if recorded
            else ["It was exported from a saved model, which has no record of accuracies."]
        ),
        "",
        "## Audit",
        "",
        *(_stamp(recorded) if recorded else ["A saved model has no journal to audit."]),
    ]
    return "\n".join(lines) + "\n"


def _front(learner: Learner, about: SeenTask, recorded: Recorded | None) -> list[str]:
    """Return the card's YAML. JSON strings are YAML strings, so a name can hold anything."""
    kind = {3: "image-classification"}.get(len(about.shape), "tabular-classification")
    kind = "text-classification" if about.padding is not None else kind
    tags = dict.fromkeys(("bocl", "continual-learning", learner.name))
    lines = ["---", "library_name: bocl", f"pipeline_tag: {kind}", "tags:", *(f"- {tag}" for tag in tags)]
    if recorded is not None:
        lines += [
            "metrics:",
            "- accuracy",
            "model-index:",
            f"- name: {json.dumps(about.name)}",
            "  results:",
            "  - task:",
            f"      type: {kind}",
            "    dataset:",
            f"      name: {json.dumps(recorded.stream)}",
            f"      type: {json.dumps(recorded.stream)}",
            "    metrics:",
            "    - type: accuracy",
            f"      value: {recorded.accuracy:.6f}",
            "      name: test accuracy",
        ]
    return [*lines, "---"]


def _use(about: SeenTask) -> list[str]:
    ready = "token ids of `tokenizer.json`, int64" if about.padding is not None else "samples as they came"
    return [
        f"Without bocl, with PyTorch alone ({ready}):",
        "",
        "```python",
        "import torch",
        "",
        f'network = torch.export.load("{PROGRAM}").module()',
        "logits = network(samples)",
        "```",
        "",
        "With bocl, as an `nn.Module` that can be moved, trained further and exported:",
        "",
        "```python",
        "import bocl",
        "",
        f'network = bocl.load_module("{TENSORS}")',
        "labels = [network.labels[number] for number in network(samples).argmax(1)]",
        "```",
    ]


def _samples(learner: Learner, about: SeenTask) -> list[str]:
    if about.padding is not None:
        length = about.shape[0] if learner.text is None else learner.text.length
        lines = [f"- Token ids (n, {length}), filled up with {about.padding}."]
    else:
        kind = "bytes from 0 to 255 (uint8)" if about.in_bytes else "floats (float32)"
        lines = [f"- Samples (n, {', '.join(map(str, about.shape))}): {kind}, scaled inside the model."]
    if about.columns:
        lines.append(f"- Columns, in this order: {', '.join(map(_plain, about.columns))}.")
    names = ", ".join(_plain(str(label)) for label in about.class_labels)
    return [*lines, f"- {counted(about.classes, 'class', 'classes')}, in the order of the logits: {names}."]


def _size(learner: Learner, number: int) -> list[str]:
    used = sum(parameter.numel() for parameter in learner.module(number).parameters())
    stored = sum(learner.parameters().values())
    return [f"The task computes with {used:,} parameters. The learner stores {stored:,} for all of its tasks."]


def _accuracy(recorded: Recorded) -> list[str]:
    return [
        f"On the test samples of this task: {percent(recorded.accuracy)}, and {percent(recorded.learnt)} right after "
        f"it was learnt. On its validation samples: {percent(recorded.validation)}.",
        "",
        f"Data: `{recorded.stream}`, seed {recorded.seed}, fingerprint `{recorded.data}`.",
    ]


def _stamp(recorded: Recorded) -> list[str]:
    checked = "the tensors of the method change with later tasks, so that those of the last one were checked"
    tensors = checked if recorded.tensors is None else f"{counted(recorded.tensors, 'tensor')} have the hash recorded"
    drift = recorded.canaries
    same = (
        ""
        if drift is None
        else "; stored logits have "
        + ("the same bits" if drift == 0 else f"changed by at most {drift:.2g} of the largest")
    )
    made = ", ".join(f"{name} {version}" for name, version in recorded.made_by.items() if version)
    return [
        f"The run was audited when this was written: {tensors}{same}.",
        "",
        f"- Journal: {recorded.records:,} records, the last with sha256 `{recorded.head}`.",
        f"- Learnt with {made}; that session began {recorded.time}.",
    ]


def _plain(text: str) -> str:
    """Return a name that Markdown shows as it is, in one line."""
    escaped = "".join(f"\\{character}" if character in "\\`*_{}[]()#+!|<>~$" else character for character in text)
    return " ".join(escaped.split())
