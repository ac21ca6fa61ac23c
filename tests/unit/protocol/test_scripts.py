"""Finding, composing, hashing and mapping the Lua scripts."""

import hashlib
import re
from pathlib import Path

import pytest
import redis

from rqretry.core.errors import ScriptError
from rqretry.protocol import scripts
from rqretry.protocol.scripts import CALL_LINE, Dialect, Script, ScriptLibrary
from rqretry.testing.embedded_redis import EmbeddedRedis
from tests.support.servers import ServerBinary, available_servers, start

SERVERS = available_servers()
CLOCK = "local function now()\n  return call('TIME')[1]\nend\n"


def body(flags: str = "allow-oom", *rest: str) -> str:
    return "\n".join((CALL_LINE, "--[[ what it does", "", f"  FLAGS  {flags}", "]]", *rest, ""))


@pytest.fixture
def lua(tmp_path: Path) -> Path:
    (tmp_path / "include").mkdir()
    (tmp_path / "include" / "clock.lua").write_text(CLOCK)
    (tmp_path / "fail.lua").write_text(body("allow-oom", "-- @include clock", "return now()"))
    return tmp_path


def compose(directory: Path, name: str = "fail") -> Script:
    return ScriptLibrary(directory=directory).get(name)


def test_an_include_line_is_replaced_by_the_text_of_the_include(lua: Path) -> None:
    assert compose(lua).source == body("allow-oom", CLOCK.rstrip(), "return now()")


@pytest.mark.parametrize(
    ("flags", "read_only", "allow_oom", "shebang", "legacy"),
    [
        ("allow-oom", False, True, "#!lua flags=allow-oom", "redis.call('HDEL', KEYS[1], '~')"),
        ("no-writes", True, False, "#!lua flags=no-writes", ""),
        ("none", False, False, "#!lua", ""),
    ],
)
def test_the_flags_line_decides_the_header_of_each_dialect(
    lua: Path, flags: str, read_only: bool, allow_oom: bool, shebang: str, legacy: str
) -> None:
    (lua / "verb.lua").write_text(body(flags, "return 1"))
    script = compose(lua, "verb")
    assert (script.read_only, script.allow_oom) == (read_only, allow_oom)
    assert script.text(Dialect.SHEBANG) == f"{shebang}\n{script.source}"
    assert script.text(Dialect.LEGACY) == f"{legacy}\n{script.source}"


@pytest.mark.parametrize("text", [
    "-- FLAGS  none\nreturn 1\n",
    "-- verb.lua\n--\n-- FLAGS  none\nreturn 1\n",
    "--[[ verb\n  FLAGS  none\n]]\nreturn 1\n",
])  # fmt: skip
def test_the_header_comment_may_be_a_block_or_lines(lua: Path, text: str) -> None:
    (lua / "verb.lua").write_text(text)
    assert not compose(lua, "verb").allow_oom


@pytest.mark.parametrize("text", [
    "return 1\n",
    "--[[ no flags ]]\nreturn 1\n",
    "--[[ verb\n  FLAGS  often\n]]\n",
    "--[[ verb\n  FLAGS  none\n  FLAGS  none\n]]\n",
    "--[[ verb ]]\nlocal x\n-- FLAGS  none\n",
])  # fmt: skip
def test_a_script_without_one_known_flags_line_in_its_first_comment_is_refused(
    lua: Path, text: str
) -> None:
    (lua / "verb.lua").write_text(text)
    with pytest.raises(ScriptError, match=r"lua/verb\.lua: .*FLAGS"):
        compose(lua, "verb")


def test_a_script_that_does_not_exist_is_named(lua: Path) -> None:
    with pytest.raises(ScriptError, match=r"lua/absent\.lua"):
        compose(lua, "absent")


@pytest.mark.parametrize("name", ["../fail", "include/clock", "Fail", "", "fail.lua"])
def test_a_name_that_is_not_a_verb_is_refused(lua: Path, name: str) -> None:
    with pytest.raises(ScriptError, match="not the name of a script"):
        compose(lua, name)


@pytest.mark.parametrize(("line", "complaint"), [
    ("-- @include absent", r"lua/include/absent\.lua: needed by lua/verb\.lua"),
    ("-- @include clock fence", r"lua/verb\.lua:6: write '-- @include name'"),
    ("-- @include ../fail", r"lua/verb\.lua:6: write"),
    ("  -- @include clock", r"lua/verb\.lua:6: write"),
    ("-- @include clock\n-- @include clock", r"lua/verb\.lua:7: clock is included twice"),
    ("-- @include nested", r"lua/include/nested\.lua:1: an include may not include"),
])  # fmt: skip
def test_a_wrong_include_is_refused_with_its_place(lua: Path, line: str, complaint: str) -> None:
    (lua / "include" / "nested.lua").write_text("-- @include clock\n")
    (lua / "verb.lua").write_text(body("none", line))
    with pytest.raises(ScriptError, match=complaint):
        compose(lua, "verb")


def test_the_sha_is_the_servers_sha_of_the_text(lua: Path) -> None:
    script = compose(lua)
    for dialect in Dialect:
        expected = hashlib.sha1(script.text(dialect).encode()).hexdigest()
        assert script.sha(dialect) == expected
    assert script.sha(Dialect.SHEBANG) != script.sha(Dialect.LEGACY)


def test_lines_of_an_error_are_mapped_to_the_file_they_came_from(lua: Path) -> None:
    script = compose(lua)
    lines = script.text(Dialect.SHEBANG).splitlines()
    assert script.locate(lines.index("return now()") + 1) == "lua/fail.lua:7"
    assert script.locate(lines.index("local function now()") + 1) == "lua/include/clock.lua:1"
    assert script.locate(lines.index(CALL_LINE) + 1) == "lua/fail.lua:1"
    for outside in (0, 1, len(lines) + 1):
        assert script.locate(outside) == "lua/fail.lua"


def test_an_override_swaps_an_include_and_nothing_else(lua: Path) -> None:
    virtual = "local function now() return 7 end"
    script = ScriptLibrary({"clock": virtual}, directory=lua).get("fail")
    assert script.source == compose(lua).source.replace(CLOCK, f"{virtual}\n")


def test_an_override_of_no_include_is_refused(lua: Path) -> None:
    with pytest.raises(ScriptError, match=r"lua/include/clok\.lua"):
        ScriptLibrary({"clok": ""}, directory=lua)


def test_a_prelude_and_a_call_override_keep_the_lines_mapped(lua: Path) -> None:
    library = ScriptLibrary(
        prelude="local n = 0\nlocal limit = 3",
        call_override="local function call(...)\n  return redis.call(...)\nend",
        directory=lua,
    )
    script = library.get("fail")
    lines = script.text(Dialect.LEGACY).splitlines()
    assert CALL_LINE not in lines
    assert lines[1] == "local n = 0"
    assert script.locate(3) == "prelude:2"
    assert script.locate(5) == "call override:2"
    assert script.locate(len(lines)) == "lua/fail.lua:7"


def test_a_call_override_needs_the_line_it_replaces(lua: Path) -> None:
    (lua / "verb.lua").write_text("-- FLAGS  none\nreturn 1\n")
    with pytest.raises(ScriptError, match=r"lua/verb\.lua: it needs exactly one line"):
        ScriptLibrary(call_override="local call", directory=lua).get("verb")


def test_a_library_composes_each_script_once_and_lists_only_verbs(lua: Path) -> None:
    (lua / "README.md").write_text("text")
    (lua / "ack.lua").write_text(body())
    library = ScriptLibrary(directory=lua)
    assert library.get("fail") is library.get("fail")
    assert library.names() == ["ack", "fail"]


def test_the_checkout_has_its_scripts_beside_the_package() -> None:
    assert Path(str(scripts.script_directory())).name == "lua"
    assert {"publish", "lease", "succeed", "fail"} <= set(scripts.names())
    assert scripts.load("lease").allow_oom


@pytest.mark.parametrize("server", SERVERS, ids=[server.version for server in SERVERS])
def test_every_script_of_the_project_loads_under_its_sha(server: ServerBinary) -> None:
    dialect = Dialect.SHEBANG if server.major >= 7 else Dialect.LEGACY
    library = ScriptLibrary()
    with start(server) as running, connect(running) as client:
        for name in library.names():
            script = library.get(name)
            assert client.script_load(script.text(dialect)) == script.sha(dialect)


@pytest.mark.parametrize("server", SERVERS, ids=[server.version for server in SERVERS])
@pytest.mark.parametrize("flags", ["allow-oom", "none"])
def test_at_maxmemory_only_a_script_that_allows_it_still_writes(
    lua: Path, server: ServerBinary, flags: str
) -> None:
    (lua / "verb.lua").write_text(body(flags, "return call('HSET', KEYS[1], 'field', 'value')"))
    dialect = Dialect.SHEBANG if server.major >= 7 else Dialect.LEGACY
    text = compose(lua, "verb").text(dialect)
    with EmbeddedRedis(server.path) as running, connect(running) as client:
        client.config_set("maxmemory", "1")
        if flags == "allow-oom":
            assert client.eval(text, 1, "meta") == 1
        else:
            with pytest.raises(redis.ResponseError, match=r"OOM|maxmemory"):
                client.eval(text, 1, "meta")
            assert client.exists("meta") == 0


@pytest.mark.parametrize("server", SERVERS, ids=[server.version for server in SERVERS])
def test_the_line_in_a_servers_error_is_the_line_that_locate_takes(
    lua: Path, server: ServerBinary
) -> None:
    (lua / "verb.lua").write_text(body("allow-oom", "-- @include clock", "local a = nil + 1"))
    dialect = Dialect.SHEBANG if server.major >= 7 else Dialect.LEGACY
    script = compose(lua, "verb")
    with (
        EmbeddedRedis(server.path) as running,
        connect(running) as client,
        pytest.raises(redis.ResponseError) as caught,
    ):
        client.eval(script.text(dialect), 1, "meta")
    line = re.search(r"user_script:(\d+)", str(caught.value))
    assert line is not None
    assert script.locate(int(line[1])) == "lua/verb.lua:7"


def connect(server: EmbeddedRedis) -> "redis.Redis":
    return redis.Redis.from_url(server.url)
