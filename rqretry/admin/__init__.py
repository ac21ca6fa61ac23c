"""The operators' API, without I/O: queries, settings, dead letters, and moving messages."""
