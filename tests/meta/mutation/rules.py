"""All cases, by the rules of docs/conformance.md and docs/guarantees.md."""

from tests.meta.mutation.cases import (
    batches,
    bounds,
    clock,
    dead_letters,
    gateway,
    groups,
    growth,
    guarantees,
    limits,
    operators,
    ordered,
    periodic,
    places,
    push,
    replays,
    subscriptions,
)

CASES = (
    *push.CASES,
    *subscriptions.CASES,
    *gateway.CASES,
    *groups.CASES,
    *dead_letters.CASES,
    *limits.CASES,
    *guarantees.CASES,
    *bounds.CASES,
    *clock.CASES,
    *growth.CASES,
    *ordered.CASES,
    *periodic.CASES,
    *places.CASES,
    *operators.CASES,
    *replays.CASES,
    *batches.CASES,
)
