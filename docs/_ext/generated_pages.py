"""Pages that are made from the code when the site is built: methods, commands, public names, and files of the project.

They are written to ``docs/reference`` and ``docs/project``, which git ignores.
"""

from __future__ import annotations

import inspect
import re
from dataclasses import MISSING, fields, is_dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, get_type_hints

from docstrings import inline, to_rst
from sphinx.util.typing import stringify_annotation
from typer.main import get_command

import bocl
from bocl.cli.main import app as command_line
from bocl.method_table import METHODS, MethodEntry

DOCS = Path(__file__).parents[1]
ROOT = DOCS.parent
PROJECT = {f"{name.upper()}.md": f"{name}.md" for name in ("architecture", "contributing", "security", "changelog")}
ROOMS = {
    "methods": "Learning and running",
    "experiment": "Learning and running",
    "records": "Learning and running",
    "tracking": "Learning and running",
    "tasks": "Tasks and streams",
    "networks": "Networks",
    "search": "Searching",
}
EXIT_CODES = "Exit codes: 0 done, 1 the work failed, 2 the input was wrong, 130 stopped by Ctrl-C, 143 by SIGTERM."
SECTIONS = ("Methods", "Settings", *dict.fromkeys(ROOMS.values()), "Errors")


def setup(app: Any) -> dict[str, bool]:
    """Connect to Sphinx."""
    app.connect("builder-inited", write_pages)
    app.connect("autodoc-process-docstring", _rewrite, priority=1)  # before Napoleon
    app.connect("autodoc-process-signature", _plain_types)
    return {"parallel_read_safe": True}


def write_pages(app: Any) -> None:
    """Write every generated page; one whose text is the same is left alone, so that it is not read again."""
    pages = {
        "reference/commands.rst": commands(),
        "reference/api.rst": api(),
        **{f"reference/methods/{name}.rst": method(entry) for name, entry in METHODS.items()},
        **{f"project/{page}": project_file(file) for file, page in PROJECT.items()},
    }
    for folder in ("reference", "project"):
        for old in (DOCS / folder).rglob("*.*"):
            if str(old.relative_to(DOCS)) not in pages:
                old.unlink()
    for name, text in pages.items():
        path = DOCS / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def method(entry: MethodEntry) -> str:
    """Return the page of a method: what its module says, its settings, its class."""
    summary, _, text = (import_module(entry.home).__doc__ or "").removeprefix(f"{entry.cls}: ").partition("\n")
    summary = summary[:1].upper() + summary[1:]
    lines = [*_title(entry.cls), *to_rst([summary]), *to_rst(inspect.cleandoc(text).split("\n"))]
    use = [f"``bocl run digits --methods {entry.name}``, or ``bocl.{entry.cls}`` in Python."]
    use += [f"Its settings are the section ``[{entry.name}]`` of a config."] if entry.settings else []
    use += ["It tries several growths for each task and keeps one."] if entry.searches else []
    use += ["It is a control: it shows what a part of the other methods is worth."] if entry.control else []
    lines += [*_title("Use", "-"), " ".join(use), ""]
    public = [name for name in (entry.settings, entry.cls) if name in bocl.__all__]
    for name in public:
        lines += [f".. autoclass:: bocl.{name}", "   :no-index:", *_members(name), ""]
    return "\n".join(lines)


def api() -> str:
    """Return the page of all public names, in sections."""
    names: dict[str, list[str]] = {section: [] for section in SECTIONS}
    for name in bocl.__all__:
        if not name.startswith("_"):
            names[_section(name)].append(name)
    lines = [*_title("API"), "Every public name of ``bocl``. Anything else may change without notice.", ""]
    for section, found in names.items():
        lines += _title(section, "-")
        for name in found:
            kind = "class" if inspect.isclass(getattr(bocl, name)) else "function"
            lines += [f".. auto{kind}:: bocl.{name}", *(_members(name) if kind == "class" else []), ""]
    lines += [*_title("scikit-learn", "-"), ".. autoclass:: bocl.sklearn.BOCLClassifier"]
    lines += ["   :members: fit, learn_task, predict, predict_proba, decision_function, score", ""]
    lines += [*_title("Avalanche", "-"), ".. autofunction:: bocl.avalanche.from_avalanche", ""]
    lines += [".. autoclass:: bocl.avalanche.Strategy", "   :members: train, eval", ""]
    return "\n".join(lines)


def _section(name: str) -> str:
    found = getattr(bocl, name)
    if inspect.isclass(found) and issubclass(found, BaseException):
        return "Errors"
    if inspect.isclass(found) and issubclass(found, bocl.Learner):
        return "Methods"
    if name.endswith("Settings") or name == "Recipe":
        return "Settings"
    return ROOMS[found.__module__.split(".")[1]]


def _members(name: str) -> list[str]:
    if name == "Learner":  # every method has these; the rest of it is for those who write one
        return ["   :members: learn, predict, parameters, save"]
    if _section(name) == "Methods":
        return ["   :show-inheritance:"]
    return [] if _section(name) in ("Settings", "Errors") else ["   :members:", "   :exclude-members: __new__"]


def commands() -> str:
    """Return the page of all commands, as the command line itself describes them."""
    root = get_command(command_line)
    lines = [*_title("Commands"), f"{root.help} Every command has ``--help``.", ""]
    lines += [*_parameters(root), EXIT_CODES, ""]
    for name, command in root.commands.items():
        lines += _command(f"bocl {name}", command, "-")
    return "\n".join(lines)


def _command(name: str, command: Any, underline: str) -> list[str]:
    arguments = [_words(parameter) for parameter in command.params if parameter.param_type_name == "argument"]
    usage = " ".join([name, "[OPTIONS]", *arguments])
    help_text = to_rst(inspect.cleandoc(command.help or "").split("\n"))
    lines = [*_title(name, underline), *help_text, ".. code-block:: text", "", f"   {usage}", "", *_parameters(command)]
    for other, sub in getattr(command, "commands", {}).items():
        lines += _command(f"{name} {other}", sub, "~")
    return lines


def _parameters(command: Any) -> list[str]:
    rows = []
    for parameter in command.params:
        if getattr(parameter, "hidden", False):
            continue
        default = parameter.default
        shown = default is not None and default is not False and not callable(default) and not parameter.required
        if parameter.param_type_name == "option" and parameter.secondary_opts:
            default = (parameter.opts if default else parameter.secondary_opts)[0]
            shown = True
        meaning = inline(parameter.help or "")
        value = f" Default: ``{default}``." if shown else ""
        rows += [f"   * - ``{_words(parameter)}``", f"     - {meaning}{value}"]
    head = [".. list-table::", "   :widths: 30 70", ""]
    return [*head, *rows, ""] if rows else []


def _words(parameter: Any) -> str:
    """Return how a parameter is written: ``--out, -o`` or ``RUN...``."""
    if parameter.param_type_name == "argument":
        return parameter.metavar or parameter.name.upper()
    options = ", ".join(sorted(parameter.opts, key=len, reverse=True))
    options += "".join(f" / {other}" for other in parameter.secondary_opts)
    return f"{options} {parameter.metavar}" if parameter.metavar else options


def project_file(name: str) -> str:
    """Return a file of the project as a page: links between such files lead to pages, others become plain names."""

    def link(found: re.Match[str]) -> str:
        words, target = found.groups()
        if target.startswith(("http", "#")):
            return found[0]
        if target.startswith("docs/"):
            return f"[{words}](../{target.removeprefix('docs/')})"
        return f"[{words}]({PROJECT[target]})" if target in PROJECT else words

    return re.sub(r"\[([^]]+)\]\(([^)]+)\)", link, (ROOT / name).read_text(encoding="utf-8"))


def _rewrite(app: Any, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    lines[:] = to_rst(lines)


def _plain_types(app: Any, what: str, name: str, thing: Any, options: Any, signature: str, result: str) -> Any:
    """Show the fields of settings as ``float`` and ``int``; what their checks are made of says nothing to a reader."""
    if what != "class" or not is_dataclass(thing):
        return None
    hints, shown = get_type_hints(thing), []
    for entry in fields(thing):
        default = entry.default if entry.default is not MISSING else entry.default_factory
        made = isinstance(default, type)
        value = "" if default is MISSING else f" = {default.__name__}()" if made else f" = {default!r}"
        shown.append(f"{entry.name}: {stringify_annotation(hints[entry.name], 'smart')}{value}")
    return f"({', '.join(shown)})", result


def _title(text: str, underline: str = "=") -> list[str]:
    return [text, underline * len(text), ""]
