"""Values and rules, no I/O: messages, results, policies, levels, durations, errors, limits."""
