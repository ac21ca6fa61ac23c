"""`client.admin`, without asyncio and with it."""

from rqretry.admin import AdminOperations
from rqretry.protocol.command import Performer, SyncPerformer, awaitable, blocking


class Admin:
    """The operators' API; see AdminOperations for each method."""

    def __init__(self, store: SyncPerformer, operations: AdminOperations) -> None:
        self.store = store
        self.operations = operations

    topics = blocking(AdminOperations.topics)
    create_topic = blocking(AdminOperations.create_topic)
    groups = blocking(AdminOperations.groups)
    group = blocking(AdminOperations.group)
    set_group = blocking(AdminOperations.set_group)
    stats = blocking(AdminOperations.stats)
    message = blocking(AdminOperations.message)
    dead_letters = blocking(AdminOperations.dead_letters)
    redrive = blocking(AdminOperations.redrive)
    purge = blocking(AdminOperations.purge)
    promote = blocking(AdminOperations.promote)
    reset = blocking(AdminOperations.reset)
    export = blocking(AdminOperations.export)
    set_topic = blocking(AdminOperations.set_topic)
    delete_topic = blocking(AdminOperations.delete_topic)
    pause = blocking(AdminOperations.pause)
    resume = blocking(AdminOperations.resume)
    unsubscribe = blocking(AdminOperations.unsubscribe)
    delete_group = blocking(AdminOperations.delete_group)
    workers = blocking(AdminOperations.workers)
    inflight = blocking(AdminOperations.inflight)
    timeline = blocking(AdminOperations.timeline)
    explain = blocking(AdminOperations.explain)
    find = blocking(AdminOperations.find)
    remembered = blocking(AdminOperations.remembered)
    audit = blocking(AdminOperations.audit)
    transactions = blocking(AdminOperations.transactions)
    transaction = blocking(AdminOperations.transaction)
    commit_transaction = blocking(AdminOperations.commit_transaction)
    rollback_transaction = blocking(AdminOperations.rollback_transaction)
    fsck = blocking(AdminOperations.fsck)


class AsyncAdmin:
    """The operators' API for asyncio; see AdminOperations for each method."""

    def __init__(self, store: Performer, operations: AdminOperations) -> None:
        self.store = store
        self.operations = operations

    topics = awaitable(AdminOperations.topics)
    create_topic = awaitable(AdminOperations.create_topic)
    groups = awaitable(AdminOperations.groups)
    group = awaitable(AdminOperations.group)
    set_group = awaitable(AdminOperations.set_group)
    stats = awaitable(AdminOperations.stats)
    message = awaitable(AdminOperations.message)
    dead_letters = awaitable(AdminOperations.dead_letters)
    redrive = awaitable(AdminOperations.redrive)
    purge = awaitable(AdminOperations.purge)
    promote = awaitable(AdminOperations.promote)
    reset = awaitable(AdminOperations.reset)
    export = awaitable(AdminOperations.export)
    set_topic = awaitable(AdminOperations.set_topic)
    delete_topic = awaitable(AdminOperations.delete_topic)
    pause = awaitable(AdminOperations.pause)
    resume = awaitable(AdminOperations.resume)
    unsubscribe = awaitable(AdminOperations.unsubscribe)
    delete_group = awaitable(AdminOperations.delete_group)
    workers = awaitable(AdminOperations.workers)
    inflight = awaitable(AdminOperations.inflight)
    timeline = awaitable(AdminOperations.timeline)
    explain = awaitable(AdminOperations.explain)
    find = awaitable(AdminOperations.find)
    remembered = awaitable(AdminOperations.remembered)
    audit = awaitable(AdminOperations.audit)
    transactions = awaitable(AdminOperations.transactions)
    transaction = awaitable(AdminOperations.transaction)
    commit_transaction = awaitable(AdminOperations.commit_transaction)
    rollback_transaction = awaitable(AdminOperations.rollback_transaction)
    fsck = awaitable(AdminOperations.fsck)
