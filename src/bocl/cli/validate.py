"""``bocl validate``: check a config without running it."""

from __future__ import annotations

from typing import Annotated

import typer

from bocl.cli.options import Methods, Overrides, complete_preset


def validate_command(
    source: Annotated[
        str,
        typer.Argument(
            metavar="PRESET|CONFIG", help="A preset by name, or a .toml file.", autocompletion=complete_preset
        ),
    ],
    overrides: Overrides = None,
    methods: Methods = None,
    trust: Annotated[
        bool, typer.Option("--trust", help="Import and run the function that the config names as its network.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the whole config of each method as JSON.")] = False,
) -> None:
    """Check a config: every key and value, and that its network can be traced and grown by every method named.

    A config is code: `bocl run` imports and calls the function that it names as its network. This command does so only
    with --trust.
    """
    from dataclasses import replace

    from bocl.cli.comma_lists import parse_methods
    from bocl.cli.printing import print_json, say, warn
    from bocl.experiment.build import build_base, build_method, build_stream, groups_in_words, grows_in, module_of
    from bocl.experiment.config import load_config
    from bocl.experiment.grid import chosen_methods, plan
    from bocl.methods.seen import SeenTask, check_task
    from bocl.settings import to_plain
    from bocl.tasks.streams import STREAMS
    from bocl.wording import counted

    named, config = parse_methods(methods), load_config(source, overrides or [])
    module = module_of(config.network)
    if module is None or trust:
        configs = [each for each, _ in plan(source, overrides or [], methods=named, device="cpu", tell=warn)]
        built = build_base(config)
        graph = grows_in(built)
        stream = config.stream
        at_hand = stream.name == "permuted-digits" or (stream.name not in STREAMS and (trust or not stream.is_code))
        if at_hand:  # without a download, so the network is tried on its samples too
            made = build_stream(config)
            first = made[0]
            check_task(graph, first, seen=[])
            for index in range(1, len(made)):
                check_task(graph, made[index], seen=[SeenTask.of(first)])
            for each in configs:
                build_method(each, built, "cpu").check_budget(first.classes)
        network = groups_in_words(graph)
    else:
        configs = [replace(config, method=method) for method in chosen_methods(named, config)]
        network = f"not built, because that runs code of {module}; add --trust if you trust it"
    if as_json:
        plain = [to_plain(each) for each in configs]
        print_json(plain if methods else plain[0])
        return
    tasks = "all tasks" if config.stream.tasks is None else counted(config.stream.tasks, "task")
    say(f"{source} is valid: {', '.join(each.method for each in configs)} on {tasks} of {config.stream.name}")
    say(f"network {config.network.build}: {network}")
    if config.stream.is_code and not trust:
        say(f"stream {config.stream.name}: not made, because that runs its code; add --trust if you trust it")
