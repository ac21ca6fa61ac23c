"""What users declare: handlers, tasks, typed topics, simple consumers, transaction checkers."""
