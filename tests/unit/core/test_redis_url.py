import dataclasses
from typing import Any

import pytest
import redis
import redis.asyncio

from rqretry.core.errors import ConfigError
from rqretry.core.redis_url import RedisUrl


@pytest.mark.parametrize(
    ("text", "safe", "kwargs"),
    [
        ("redis://h", "redis://h:6379/0", {"host": "h", "port": 6379, "db": 0}),
        ("REDIS://Host:7000/3", "redis://host:7000/3", {"host": "host", "port": 7000, "db": 3}),
        ("redis://h/", "redis://h:6379/0", {"host": "h", "port": 6379, "db": 0}),
        ("redis://h?db=4", "redis://h:6379/4", {"host": "h", "port": 6379, "db": 4}),
        ("redis://[::1]:6380/1", "redis://[::1]:6380/1", {"host": "::1", "port": 6380, "db": 1}),
        ("redis://my_redis-1.svc", "redis://my_redis-1.svc:6379/0", {"host": "my_redis-1.svc"}),
        ("redis://xn--bcher-kva.example", "redis://xn--bcher-kva.example:6379/0", {}),
        ("redis://:p%40%2Fss@h", "redis://***@h:6379/0", {"password": "p@/ss"}),
        ("redis://:p@ss@h", "redis://***@h:6379/0", {"password": "p@ss"}),
        ("redis://u:p@h", "redis://***@h:6379/0", {"username": "u", "password": "p"}),
        ("redis://secret@h", "redis://***@h:6379/0", {"username": "secret"}),
        ("redis://:@h", "redis://h:6379/0", {}),
        (
            "redis://h?socket_timeout=5&socket_connect_timeout=0.5&client_name=me",
            "redis://h:6379/0",
            {"socket_timeout": 5.0, "socket_connect_timeout": 0.5, "client_name": "me"},
        ),
        ("unix:///run/r.sock", "unix:///run/r.sock", {"path": "/run/r.sock", "db": 0}),
        ("unix://:p@/run/r.sock?db=2", "unix://***@/run/r.sock?db=2", {"password": "p", "db": 2}),
        ("unix:///a%20b/r.sock", "unix:///a b/r.sock", {"path": "/a b/r.sock"}),
        (
            "rediss://h:1/?ssl_ca_certs=/ca.pem&ssl_check_hostname=false",
            "rediss://h:1/0",
            {
                "ssl_cert_reqs": "required",
                "ssl_ca_certs": "/ca.pem",
                "ssl_check_hostname": False,
            },
        ),
        (
            "rediss://h",
            "rediss://h:6379/0",
            {"ssl_cert_reqs": "required", "ssl_check_hostname": True},
        ),
    ],
)
def test_a_good_url_is_read(text: Any, safe: Any, kwargs: Any) -> None:
    url = RedisUrl.parse(text)
    assert str(url) == url.safe == safe
    assert kwargs.items() <= url.redis_kwargs().items()


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (None, "is NoneType, not str"),
        (123, "is int, not str"),
        (b"redis://h", "is bytes, not str"),
        ("", "is empty"),
        (" redis://h", "holds ' ' at position 0"),
        ("redis://h\n", r"holds '\\n' at position 9"),
        ("redis://h\n.evil", r"holds '\\n'"),
        ("redis://ho st", "holds ' '"),
        ("redis://h\x00", r"holds '\\x00'"),
        ("'redis://h'", "must begin with redis://"),
        ("localhost:6379", "must begin with redis://"),
        ("redis:/h", "must begin with redis://"),
        ("redis:h", "must begin with redis://"),
        ("http://h", "must begin with redis://"),
        ("redis+sentinel://h", "names no service"),
        ("redis+sentinel://h/", "names no service"),
        ("redis+sentinel://h//1", "names no service"),
        ("redis+sentinel:///svc", "names no host"),
        ("redis+sentinel://h,/svc", "names no host"),
        ("redis+sentinel://a:1,b:x/svc", "port .* is not a number"),
        ("redis+sentinel://a:1,a:1/svc", "names 'a:1' twice"),
        ("redis+sentinel://h/s%20c", "service 's c' .* is not a name"),
        ("redis+sentinel://h/svc/one", "database 'one'"),
        ("redis+sentinel://h/svc/1?db=2", "names the database twice"),
        ("redis+sentinel://h/svc?sentinel_password=", "sentinel_password .* is empty"),
        ("redis+sentinel://h/svc?ssl_ca_certs=/x", r"needs TLS: .* with rediss\+sentinel://"),
        ("redis+cluster://", "names no host"),
        ("redis+cluster://a,,b", "names no host"),
        ("redis+cluster://a,b/1", "database '1' .* only database 0"),
        ("redis+cluster://a/x", "database 'x' .* only database 0"),
        ("redis+cluster://a?db=1", "database '1' .* has only 0"),
        ("redis+cluster://a,a", "names 'a:6379' twice"),
        ("redis+cluster://" + ",".join(f"h{i}" for i in range(65)), "names 65 hosts"),
        ("redis+cluster://a?sentinel_password=x", "sentinel_password is for Sentinels"),
        ("redis+what://h", "must begin with redis://"),
        ("unix+cluster://h", "must begin with redis://"),
        ("redis://", "names no host"),
        ("redis:///0", "names no host"),
        ("redis://:6379", "names no host"),
        ("redis://u:p@", "names no host"),
        ("redis://h:0", "port 0 .* must be 1 to 65535"),
        ("redis://h:65536", "port 65536 .* must be 1 to 65535"),
        ("redis://h:", "port .* is not a number"),
        ("redis://h:-1", "port .* is not a number"),
        ("redis://h:abc", "port .* is not a number"),
        ("redis://h:\u0661", "port .* is not a number"),
        ("redis://[::1]x", "malformed host|something between"),
        ("redis://[::1", "malformed host"),
        ("redis://[nope]", "malformed host|no IPv6"),
        ("redis://h.", "is not a host name"),
        ("redis://.h", "is not a host name"),
        ("redis://-h", "is not a host name"),
        ("redis://h..x", "is not a host name"),
        ("redis://h%20x", "is not a host name"),
        ("redis://b\u00fccher", "not ASCII: write it in punycode"),
        ("redis://h1,h2", "is not a host name"),
        ("redis://h/notint", "database 'notint' .* whole number"),
        ("redis://h/-1", "database '-1'"),
        ("redis://h/0/1", "database '0/1'"),
        ("redis://h/1.5", "database '1.5'"),
        ("redis://h?db=-1", "database '-1'"),
        ("redis://h?db=", "database ''"),
        ("redis://h/1?db=1", "names the database twice"),
        ("redis://h?bogus=1", "has an unknown option: known are socket_timeout"),
        ("redis://h?socket_timout=1", "unknown option, did you mean socket_timeout: known"),
        ("redis://h?socket_timeout=5&socket_timeout=6", "'socket_timeout' twice"),
        ("redis://h#0", "holds '#'"),
        ("redis://:p@h?password=q", "password as an option as well: write it once"),
        ("redis://h?password=q", "password as an option: write it once"),
        ("redis://h?ssl_cert_reqs=none", "ssl_cert_reqs is refused"),
        ("rediss://h?ssl_cert_reqs=none", "ssl_cert_reqs is refused"),
        ("redis://h?ssl_ca_certs=/x", "ssl_ca_certs needs TLS"),
        ("rediss://h?ssl_check_hostname=maybe", "must be true or false"),
        ("rediss://h?ssl_keyfile=", "must be the path of a file"),
        ("redis://h?client_name=", "client_name ''"),
        ("redis://h?client_name=a%20b", "client_name 'a b'"),
        ("unix://", "path of a socket file"),
        ("unix:///", "path of a socket file"),
        ("unix://run/r.sock", "absolute path, with three slashes"),
        ("unix:///run/", "path of a socket file"),
        ("unix:///run/%00", "path of a socket file"),
    ],
)
def test_a_bad_url_is_refused_with_the_part_at_fault(text: Any, error: Any) -> None:
    with pytest.raises(ConfigError, match=error):
        RedisUrl.parse(text)


@pytest.mark.parametrize("option", ["socket_timeout", "socket_connect_timeout"])
@pytest.mark.parametrize("bad", ["abc", "-1", "0", "0.0", "nan", "inf", "", "1e3", "1_0", "+5"])
def test_a_timeout_must_be_a_number_of_seconds_above_zero(option: Any, bad: Any) -> None:
    with pytest.raises(ConfigError, match=f"^{option} .*seconds above 0"):
        RedisUrl.parse(f"redis://h?{option}={bad}")


@pytest.mark.parametrize(
    "text",
    [
        "redis://user:hunter2@h:notaport",
        "redis://user:hunter2@h/notint",
        "redis://user:hunter2@h?bogus=1",
        "redis://user:hunter2@",
        "redis://user:hunter2",
        "redis://user:12/hunter2@h",
        "redis://user:a#hunter2@h",
        "redis://user:a?hunter2@h",
        "redis://user:a?hunter2=b@h",
        "redis://user:a@b/hunter2@h",
        "redis://user:a@b?hunter2@h",
        "redis://user:a/hunter2@h?db=1",
        "redis://user:hunter2 @h",
        "redis://user:hunter2[@h",
        "redis://user:hunter2\u2100@h",
        "user:hunter2@h",
        "redis:user:hunter2@h",
        "redis+sentinel://user:hunter2@h",
        "redis+sentinel://user:hunter2@h:x,h2/svc",
        "redis+sentinel://h/svc?sentinel_password=hunter2&sentinel_password=hunter2",
        "redis+sentinel://h/svc?sentinel_pasword=hunter2",
        "redis://h?sentinel_password=hunter2",
        "redis+cluster://user:hunter2@h/1",
        "redis+cluster://user:hunter2@h1,user:hunter2@h2",
        "redis://h?password=hunter2",
        "redis://h?hunter2=1",
        "unix://user:hunter2@run/r.sock",
    ],
)
def test_no_error_shows_a_password(text: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        RedisUrl.parse(text)
    assert "hunter2" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert "hunter2" not in repr(caught.value.__context__)


def test_neither_text_nor_repr_shows_a_password() -> None:
    url = RedisUrl.parse("redis://user:hunter2@h:7000/1?client_name=me")
    for text in (str(url), repr(url), url.safe, url.address, f"{url}"):
        assert "hunter2" not in text
        assert "user" not in text.replace("username", "")


def test_sentinels_have_a_password_of_their_own_that_is_never_shown() -> None:
    url = RedisUrl.parse(
        "redis+sentinel://u:p%40@a,b:7,[::1]/my-svc/3"
        "?sentinel_username=su&sentinel_password=hunter2&client_name=me"
    )
    assert (url.deployment, url.service, url.db) == ("sentinel", "my-svc", 3)
    assert url.hosts == (("a", 26379), ("b", 7), ("::1", 26379))
    assert url.safe == "redis+sentinel://***@a:26379,b:7,[::1]:26379/my-svc/3"
    for text in (repr(url), *map(repr, url.seeds()), str(url)):
        assert "hunter2" not in text
        assert "p@" not in text

    first = url.seeds()[0].redis_kwargs()
    assert first == {
        "host": "a", "port": 26379, "db": 0, "username": "su", "password": "hunter2",
        "client_name": "me",
    }  # fmt: skip
    primary = url.at("c", 9)
    assert primary.address == "c:9"
    assert primary.redis_kwargs() == {
        "host": "c", "port": 9, "db": 3, "username": "u", "password": "p@", "client_name": "me",
    }  # fmt: skip


def test_without_a_password_of_their_own_sentinels_get_none() -> None:
    url = RedisUrl.parse("rediss+sentinel://u:p@a/svc")
    (seed,) = url.seeds()
    assert "password" not in seed.redis_kwargs()
    assert seed.scheme == url.at("b", 1).scheme == "rediss"
    assert url.at("b", 1).redis_kwargs()["ssl_cert_reqs"] == "required"


def test_the_nodes_of_a_cluster_have_its_user_and_options() -> None:
    url = RedisUrl.parse("rediss+cluster://u:p@a,b:7?socket_timeout=3")
    assert (url.deployment, url.db, url.safe) == ("cluster", 0, "rediss+cluster://***@a:6379,b:7")
    assert [seed.address for seed in url.seeds()] == ["a:6379", "b:7"]
    assert all(seed.redis_kwargs()["password"] == "p" for seed in url.seeds())
    assert url.at("c", 9).option("socket_timeout", 1.0) == 3.0


def test_the_place_is_where_the_server_is() -> None:
    assert RedisUrl.parse("redis://h").address == "h:6379"
    assert RedisUrl.parse("redis://[::1]:7").address == "[::1]:7"
    assert RedisUrl.parse("unix:///run/r.sock").address == "/run/r.sock"


def test_a_url_is_a_value() -> None:
    assert RedisUrl.parse("redis://h") == RedisUrl.parse("redis://h:6379/0")
    with pytest.raises(dataclasses.FrozenInstanceError):
        RedisUrl.parse("redis://h").port = 1  # type: ignore[misc]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("redis://u:p@h:7/2?socket_timeout=5&client_name=me", "Connection"),
        ("rediss://u:p@h:7/2?ssl_ca_certs=/ca&ssl_check_hostname=no", "SSLConnection"),
        ("unix://u:p@/run/r.sock?db=2&socket_timeout=1", "UnixDomainSocketConnection"),
    ],
)
@pytest.mark.parametrize("library", [redis, redis.asyncio])
def test_redis_py_takes_the_keywords_as_they_are(library: Any, text: Any, kind: Any) -> None:
    url = RedisUrl.parse(text)
    connection = getattr(library.connection, kind)(**url.redis_kwargs())
    assert connection.db == 2
    assert (connection.username, connection.password) == ("u", "p")
    for name, value in url.options:
        if hasattr(connection, name):
            assert getattr(connection, name) == value
