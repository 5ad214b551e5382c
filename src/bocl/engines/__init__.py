"""Where runs, and parts of rounds, are computed: other processes, GPUs and machines."""
