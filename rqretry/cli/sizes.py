"""Bytes in words, and how much of the server's memory the queue takes."""

from rqretry.admin.views import Stats

_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB")
_STEP = 1024


def in_bytes(count: float) -> str:
    """1536 is "1.5 KiB"."""
    power = 0
    while count >= _STEP and power < len(_UNITS) - 1:
        count, power = count / _STEP, power + 1
    return f"{count:.0f} bytes" if power == 0 else f"{count:.1f} {_UNITS[power]}"


def dead_bytes(stats: Stats) -> int | None:
    """About what the bodies of dead letters take; None where the server does not say."""
    total = 0.0
    for topic in stats.topics:
        if topic.bytes is None:
            return None
        dead = sum(group.dead for group in topic.groups)
        # A body that is dead for two groups is stored once.
        total += topic.bytes * min(1.0, dead / max(1, topic.stored))
    return round(total)


def memory_line(stats: Stats) -> str:
    """What history and dead letters take of the server's memory; "" where it does not say."""
    if stats.used_memory is None or not stats.topics:
        return ""
    said = f"Redis uses {in_bytes(stats.used_memory)}"
    if stats.max_memory:
        share = 100 * stats.used_memory / stats.max_memory
        said += f" of {in_bytes(stats.max_memory)} ({share:.0f}%)"
    elif stats.max_memory == 0:
        said += " (maxmemory is not set)"
    history = sum(topic.history_bytes for topic in stats.topics)
    parts = [f"history {in_bytes(history)}"]
    dead = dead_bytes(stats)
    if dead is not None:
        parts.append(f"dead letters about {in_bytes(dead)}")
    return f"{said}; these topics: {', '.join(parts)}"
