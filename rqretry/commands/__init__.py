"""One function per script: a verb becomes (script, keys, args, decode). No I/O here."""
