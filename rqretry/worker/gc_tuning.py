"""Python's garbage collector in a process that does nothing but handle messages."""

import gc

_YOUNG = 20_000
_GENERATIONS = 20


def collect_less_often() -> None:
    """Collect less often, and leave alone what is there already; for worker processes.

    A message in flight is a handful of objects that reference counting frees as soon as it is
    settled. Python's defaults walk through all those in flight after every 700 new ones, which took
    a seventh of a worker's CPU. Cycles that handlers make are still found, a few thousand objects
    later.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG, _GENERATIONS, _GENERATIONS)
