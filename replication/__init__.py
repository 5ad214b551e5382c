"""The replication of one paper with bocl: its claims and figures, its studies and their records. Not installed.

Run from the root of a checkout, as ``python -m replication.page`` is.
"""
