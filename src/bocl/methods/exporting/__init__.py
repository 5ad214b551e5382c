"""Tasks of a learner in forms that other systems read; each is checked with samples before it counts as written."""
