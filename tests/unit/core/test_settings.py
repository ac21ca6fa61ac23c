"""Settings from the environment: a name that is nearly right is refused, any other is named."""

import pytest

from rqretry import Client, ConfigError
from rqretry.core import settings
from rqretry.core.settings import Settings


@pytest.fixture(autouse=True)
def forgotten() -> None:
    """Names are warned of once a process."""
    settings._refuse_variable.cache_clear()


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("RQRETRY_NAMESPCE", "RQRETRY_NAMESPACE"),
        ("RQRETRY_REDIS_ULR", "RQRETRY_REDIS_URL"),
        ("RQRETRY_URL", "RQRETRY_REDIS_URL"),
        ("RQRETRY_REDIS", "RQRETRY_REDIS_URL"),
        ("RQRETRY_redis_url", "RQRETRY_REDIS_URL"),
        ("RQRETRY_LEVELS", "RQRETRY_DELAY_LEVELS"),
        ("RQRETRY_DASHBOARD_TOKENS", "RQRETRY_DASHBOARD_TOKEN"),
    ],
)
def test_a_misspelt_variable_is_refused_with_the_name_that_was_meant(
    monkeypatch: pytest.MonkeyPatch, name: str, meant: str
) -> None:
    monkeypatch.setenv(name, "canary")
    with pytest.raises(
        ConfigError, match=f"'{name}' means nothing to rqretry: did you mean {meant}"
    ):
        Client()
    with pytest.raises(ConfigError) as error:
        Settings.read("redis://h", "n", "1s")
    assert "canary" not in str(error.value)


def test_any_other_one_is_named_once_and_what_kubernetes_sets_is_not(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("RQRETRY_COLOUR", "canary")
    for name in ("SERVICE_HOST", "REDIS_SERVICE_PORT", "REDIS_SERVICE_PORT_MAIN", "PORT",
                 "REDIS_PORT", "REDIS_PORT_6379_TCP", "REDIS_PORT_6379_TCP_ADDR"):  # fmt: skip
        monkeypatch.setenv(f"RQRETRY_{name}", "tcp://10.0.0.1:6379")
    for _ in range(3):
        Settings.read()
    (line,) = [record.getMessage() for record in caplog.records]
    assert "'RQRETRY_COLOUR' means nothing: known are RQRETRY_REDIS_URL, " in line
    assert "canary" not in line
