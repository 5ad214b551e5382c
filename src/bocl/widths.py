"""The one type that networks, searches and records share."""

Widths = tuple[int, ...]  # z: units added to each hidden group
