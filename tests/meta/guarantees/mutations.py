"""The rules behind the guarantees, broken on purpose (tools/mutants.py); each must be noticed.

They are in mutations.toml, by the rules of docs/guarantees.md.
"""

from pathlib import Path

from tests.contract.conformance.mutations import read_mutations

MUTATIONS = tuple(read_mutations(Path(__file__).with_suffix(".toml")))
