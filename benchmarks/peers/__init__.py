"""Other systems, each in an environment of its own: the same workload, the same counting."""
