"""A worker process from the inside: fetch, run, settle, renew, and the upkeep for everybody."""
