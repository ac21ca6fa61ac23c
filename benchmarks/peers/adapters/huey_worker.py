"""The consumer that huey's own command runs, with one thread."""

from huey_peer import huey

huey.create_consumer(workers=1, worker_type="thread", periodic=False).run()
