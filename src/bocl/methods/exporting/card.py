"""A folder in the convention of the Hugging Face Hub: what its config and its model card say."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from bocl.methods.exporting.pt2_file import TOKENIZER, about_samples
from bocl.methods.exporting.safetensors_file import IN_A_FOLDER, description
from bocl.methods.method import Learner
from bocl.methods.seen import SeenTask
from bocl.methods.task_network import TaskNetwork
from bocl.networks.low_rank.backbone import Backbone
from bocl.networks.single_task import SingleTask
from bocl.tasks.texts import TextFormat
from bocl.version import __version__
from bocl.wording import counted, percent

PROGRAM, CONFIG, TOKENIZER_CONFIG = "model.pt2", "config.json", "tokenizer_config.json"


@dataclass(frozen=True)
class Recorded:
    """What the journal of a run says of a task, and the audit that found it true.

    accuracy    on the task's test samples when all tasks were learnt
    learnt      the same right after the task was learnt
    validation  on its validation samples
    stream      name of the stream; data: its fingerprint
    head        hash of the journal's last line; records: how many lines it has
    tensors     how many have the hash recorded
    canaries    how far stored logits are from those computed now
    made_by     versions of the session that learnt the task
    time        when that session began; seed: of the run
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


def config(learner: Learner, number: int, network: TaskNetwork, single: SingleTask) -> str:
    """Return what identifies the model for whoever lists folders: as in its tensors' file."""
    facts = description(learner, number, single)
    facts = {name: facts[name] for name in ("format", "kind", "graph", "growth", "facts")}
    about = about_samples(network)
    return json.dumps({"library_name": "bocl", "bocl_version": __version__, **about, **facts}, indent=1) + "\n"


def tokenizer_config(text: TextFormat) -> str:
    """Return what `AutoTokenizer` of the library transformers reads next to a tokenizer.json."""
    facts = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": text.length,
        "pad_token": text.filler,
        "padding_side": "right",
        "truncation_side": "right",
    }
    return json.dumps({name: value for name, value in facts.items() if value is not None}, indent=1) + "\n"


def card(
    learner: Learner,
    number: int,
    network: TaskNetwork,
    single: SingleTask,
    recorded: Recorded | None,
    sizes: Mapping[str, int],
) -> str:
    """Return the model card of one task: YAML for the Hub's lists, then Markdown for people."""
    about = network.about
    lines = [*_front(learner, about, recorded), "", f"# {plain(about.name)}", ""]
    lines += [
        f"Task {number + 1} of the {len(learner.seen)} that a learner of the library bocl has learnt one after "
        f"another, by the method `{learner.name}`. This folder holds all that the task uses, and nothing else"
        f"{_but_code(learner)}.",
        "",
        "## Use it",
        "",
        *_use(learner, network),
        "",
        "## Samples and classes",
        "",
        *_samples(network),
        "",
        "## Size",
        "",
        "| file | bytes |",
        "|---|---|",
        *(f"| `{name}` | {size:,} |" for name, size in sorted(sizes.items())),
        "",
        f"The task computes with {sum(tensor.numel() for tensor in single.tensors.values()):,} numbers. The learner "
        f"stores {sum(learner.parameters().values()):,} parameters for all of its tasks.",
        "",
        "## Accuracy",
        "",
        *(_accuracy(recorded) if recorded else ["It was exported without a journal, which would say."]),
        "",
        "## Audit",
        "",
        *(_stamp(recorded) if recorded else ["It was exported without a journal to audit."]),
    ]
    return "\n".join(lines) + "\n"


def _own_code(learner: Learner) -> str | None:
    """Return the class of the module that the learner adapts, where its code is the user's."""
    graph = learner.network.graph
    return graph.description.kind if isinstance(graph, Backbone) and graph.description.build is None else None


def _but_code(learner: Learner) -> str:
    kind = _own_code(learner)
    return "" if kind is None else f", but for the code of `{kind}`, which bocl needs to load it"


def _front(learner: Learner, about: SeenTask, recorded: Recorded | None) -> list[str]:
    """Return the card's YAML. What JSON writes as a string, without escapes for letters, YAML reads as the same."""
    kind = {1: "tabular-classification", 3: "image-classification"}.get(len(about.shape), "other")
    kind = "text-classification" if about.padding is not None else kind
    tags = dict.fromkeys(("bocl", "continual-learning", learner.name))
    lines = ["---", "library_name: bocl", *([] if kind == "other" else [f"pipeline_tag: {kind}"])]
    lines += ["tags:", *(f"- {_quoted(tag)}" for tag in tags)]
    if recorded is not None:
        lines += [
            "metrics:",
            "- accuracy",
            "model-index:",
            f"- name: {_quoted(about.name)}",
            "  results:",
            "  - task:",
            f"      type: {kind}",
            "    dataset:",
            f"      name: {_quoted(recorded.stream)}",
            f"      type: {_quoted(recorded.stream)}",
            "    metrics:",
            "    - type: accuracy",
            f"      value: {recorded.accuracy:.6f}",
            "      name: test accuracy",
        ]
    return [*lines, "---"]


def _use(learner: Learner, network: TaskNetwork) -> list[str]:
    kind, about, text = _own_code(learner), network.about, network.text
    given = "samples as they came" if about.padding is None else "token ids, int64"
    alone = f"PyTorch alone ({given})" if text is None else "PyTorch and the library tokenizers"
    return [
        f"Without bocl, with {alone}:",
        "",
        "```python",
        "import torch",
        *([] if text is None else ["from tokenizers import Tokenizer"]),
        "",
        *([] if text is None else _token_ids(text)),
        f'network = torch.export.load("{PROGRAM}").module()',
        "logits = network(samples)",
        "```",
        "",
        "With bocl, as an `nn.Module` that can be moved, trained further and exported:",
        "",
        "```python",
        "import bocl",
        *([] if text is None else ["import torch"]),
        "",
        f'network = bocl.load_module("{IN_A_FOLDER}"{"" if kind is None else f", network={kind}()"})',
        *([] if text is None else ["samples = torch.from_numpy(network.text.encode(texts).ids)"]),
        "labels = [network.labels[number] for number in network(samples).argmax(1)]",
        "```",
    ]


def _token_ids(text: TextFormat) -> list[str]:
    """Return the lines that turn texts into token ids as bocl does, whatever the tokenizer fills up or cuts off."""
    cut = f"    ids = ids if len(ids) <= {text.length} else [*ids[:{text.length - 1}], ids[-1]]"
    return [
        f'tokenizer = Tokenizer.from_file("{TOKENIZER}")',
        "tokenizer.no_padding()",
        "tokenizer.no_truncation()",
        "rows = []",
        "for ids in (row.ids for row in tokenizer.encode_batch(texts)):",
        *([cut] if text.truncate else []),
        f"    rows.append(ids + [{text.padding}] * ({text.length} - len(ids)))",
        "samples = torch.tensor(rows)",
    ]


def _samples(network: TaskNetwork) -> list[str]:
    about, text = network.about, network.text
    if about.padding is not None:
        lines = [f"- Token ids (n, {about.shape[0]}), filled up with {about.padding}."]
        if text is not None:
            longer = "cut off, but for their last token" if text.truncate else "no samples of this task"
            lines.append(f"- Texts of more tokens than that are {longer}.")
    else:
        kind = "bytes from 0 to 255 (uint8)" if about.in_bytes else "floats (float32)"
        scaled = "used as they are" if network.mean is None else "scaled inside the model"
        lines = [f"- Samples (n, {', '.join(map(str, about.shape))}): {kind}, {scaled}."]
    if about.columns:
        lines.append(f"- Columns, in this order: {listed(about.columns)}.")
    classes = counted(about.classes, "class", "classes")
    return [*lines, f"- {classes}, in the order of the logits: {listed(map(str, about.class_labels))}."]


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


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def listed(names: Iterable[str]) -> str:
    """Return names apart from each other, also where they hold commas."""
    shown = [plain(name) for name in names]
    return ", ".join(f"“{name}”" for name in shown) if any("," in name for name in shown) else ", ".join(shown)


def plain(text: str) -> str:
    """Return a name that Markdown shows as it is, in one line."""
    escaped = "".join(f"\\{character}" if character in "\\`*_{}[]()#+!|<>~$" else character for character in text)
    return " ".join(escaped.split())
