"""Rivals on pretrained networks: a head alone, fixed ranks, whole copies, and ranks that are pruned."""
