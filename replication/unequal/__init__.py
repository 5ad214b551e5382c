"""What a search can win on tasks that are unlike, and a constant cannot."""
