"""Start an adapter under its own name: some systems find handlers by the name of their module."""

import importlib
import sys

name = sys.argv.pop(1)
importlib.import_module(name).main()
