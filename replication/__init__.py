"""How the paper's evaluation was run again with bocl, and what came of it. README.md tells the whole of it."""
