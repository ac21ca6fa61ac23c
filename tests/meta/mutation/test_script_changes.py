"""How mutants of the scripts are made (script_changes.py)."""

import tomllib
from pathlib import Path

from tests.meta.mutation.script_changes import mutants_in, mutants_of
from tests.meta.mutation.scripts import REASONS

SCRIPT = """-- call('HDEL', never) == changed
local last = call('GET', lane) -- a == b
if #ids > 0 and last ~= 'a == b' then
  call('HSET', bodies,
    unpack(ids))
end
for _, id in ipairs(call('HMGET', key, unpack(ids))) do
  filled = call('RPUSH', list, id) == 1
end
"""


def changed(kind: str) -> list[str]:
    """The changed line of each mutant, and what is new in it."""
    mutants = [m for m in mutants_in("x.lua", SCRIPT) if m.kind == kind]
    return [f"{m.line}: {m.text.splitlines()[m.line - 1].strip()}" for m in mutants]


def test_every_call_is_dropped_and_answers_nothing_where_its_answer_is_used() -> None:
    assert changed("drop") == [
        "2: local last = false -- a == b",
        "4: ",
        "7: for _, id in ipairs(({})) do",
        "8: filled = 0 == 1",
    ]


def test_every_comparison_is_flipped() -> None:
    assert changed("flip") == [
        "3: if #ids <= 0 and last ~= 'a == b' then",
        "3: if #ids > 0 and last == 'a == b' then",
        "8: filled = call('RPUSH', list, id) ~= 1",
    ]


def test_names_quote_no_line_and_report_equal_ones_apart() -> None:
    mutants = mutants_in("x.lua", SCRIPT + SCRIPT)

    assert {m.text.count("\n") for m in mutants} == {2 * SCRIPT.count("\n")}
    assert len({m.name for m in mutants}) == len(mutants) == 14
    assert [m.name for m in mutants[:5]] == [
        "x: no GET lane", "x: > becomes <=", "x: ~= becomes ==", "x: no HSET bodies",
        "x: no HMGET key",
    ]  # fmt: skip
    assert "x: no GET lane #2" in {m.name for m in mutants}


def test_a_comparison_is_named_by_its_function() -> None:
    text = """local function outer(a)
  for i = 1, a do
    if i > 2 then
      return function() return i == 3 end
    end
  end
end
local x = a < b
"""
    names = [m.name for m in mutants_in("x.lua", text)]
    assert names == ["x: > becomes <= in outer", "x: == becomes ~= in outer", "x: < becomes >="]


def test_a_key_is_named_by_its_last_word() -> None:
    text = "call('ZADD', keys.dead, 1, 'a')\ncall('ZADD', levels[level], 1)\ncall('TIME')\n"
    names = [m.name for m in mutants_in("x.lua", text)]
    assert names == ["x: no ZADD dead", "x: no ZADD levels", "x: no TIME"]


def test_a_survivor_with_a_reason_is_a_mutant_that_exists() -> None:
    reasons = tomllib.loads(REASONS.read_text(encoding="utf-8"))
    assert reasons.keys() <= {m.name for m in mutants_of(Path("lua"))}


def test_every_script_has_mutants_with_names_of_their_own() -> None:
    mutants = mutants_of(Path("lua"))

    assert len({m.name for m in mutants}) == len(mutants) > 700
    assert {Path(m.path).stem for m in mutants} > {"publish", "lease", "fence", "clock"}
