"""rqretry: consumer groups, a retry ladder and a dead-letter queue for Python, on Redis.

What a program catches, annotates or returns is here. The names are imported when they are first
used (PEP 562), so that a program that only needs one module of the package, such as the pytest
plugin, does not wait for redis. They are listed once, in __init__.pyi.
"""

from rqretry.core.lazy_exports import attributes

__all__, __getattr__, __dir__ = attributes(__name__)
