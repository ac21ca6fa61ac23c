"""Keys, scripts, and one module per phase of a message: (script, keys, args, decode). No I/O."""
