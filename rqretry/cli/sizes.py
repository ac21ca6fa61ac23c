"""Bytes for people, and how much of the server's memory the queue uses."""

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
    """Roughly the size of dead letters' bodies; None if the server does not report it."""
    total = 0.0
    for topic in stats.topics:
        if topic.bytes is None:
            return None
        dead = sum(group.dead for group in topic.groups)
        # A body that is dead for two groups is stored once.
        total += topic.bytes * min(1.0, dead / max(1, topic.stored))
    return round(total)


def memory_line(stats: Stats) -> str:
    """Memory used by history and dead letters; "" if the server does not report it."""
    if stats.used_memory is None or not stats.topics:
        return ""
    text = f"Redis uses {in_bytes(stats.used_memory)}"
    if stats.max_memory:
        share = 100 * stats.used_memory / stats.max_memory
        text += f" of {in_bytes(stats.max_memory)} ({share:.0f}%)"
    elif stats.max_memory == 0:
        text += " (maxmemory is not set)"
    history = sum(topic.history_bytes for topic in stats.topics)
    parts = [f"history {in_bytes(history)}"]
    dead = dead_bytes(stats)
    if dead is not None:
        parts.append(f"dead letters about {in_bytes(dead)}")
    return f"{text}; these topics: {', '.join(parts)}"
