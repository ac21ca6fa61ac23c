"""How mutants of the scripts are made (tests/support/lua_mutants.py)."""

from pathlib import Path

from tests.support.lua_mutants import mutants_in, mutants_of

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


def test_lines_stay_where_they_are_and_names_tell_equal_ones_apart() -> None:
    mutants = mutants_in("x.lua", SCRIPT + SCRIPT)

    assert {m.text.count("\n") for m in mutants} == {2 * SCRIPT.count("\n")}
    assert len({m.name for m in mutants}) == len(mutants) == 14
    assert mutants[0].name == "x.lua: no GET in `local last = call('GET', lane) -- a == b`"


def test_every_script_has_mutants_with_names_of_their_own() -> None:
    mutants = mutants_of(Path("lua"))

    assert len({m.name for m in mutants}) == len(mutants) > 700
    assert {Path(m.path).stem for m in mutants} > {"publish", "lease", "fence", "clock"}
