"""TLS with verification, on a real server: a wrong certificate is reported and refused."""

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rqretry import AsyncClient, Client, ConfigError, StoreUnavailable
from rqretry.core.parts import parts_of
from rqretry.testing.embedded_redis import EmbeddedRedis
from tests.conftest import missing
from tests.edges.cli.shell import Shell
from tests.support.servers import free_port

SECRET = "canary-51c2"


class Tls:
    """A server with TLS, and certificates."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._make("ca", "/CN=a test authority", signer="", extra="")
        self._make("server", "/CN=localhost", signer="ca", extra="DNS:localhost")
        self._make("elsewhere", "/CN=elsewhere", signer="ca", extra="DNS:elsewhere.example")
        self._make("other-ca", "/CN=another authority", signer="", extra="")
        self.plain_port = free_port()

    def file(self, name: str) -> Path:
        """A file."""
        return self.folder / name

    def server(self, certificate: str) -> tuple[EmbeddedRedis, int]:
        """A server that shows this certificate; not started."""
        port = free_port()
        extra = (
            "--tls-port", str(port), "--tls-cert-file", str(self.file(f"{certificate}.crt")),
            "--tls-key-file", str(self.file(f"{certificate}.key")),
            "--tls-ca-cert-file", str(self.file("ca.crt")), "--tls-auth-clients", "no",
        )  # fmt: skip
        return EmbeddedRedis(port=self.plain_port, extra=extra), port

    def _make(self, name: str, subject: str, *, signer: str, extra: str) -> None:
        days = "30"
        request = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", days]
        request += ["-keyout", f"{name}.key", "-out", f"{name}.crt", "-subj", subject]
        if signer:
            request += ["-CA", f"{signer}.crt", "-CAkey", f"{signer}.key"]
            request += ["-addext", "basicConstraints=CA:FALSE"]
        else:  # Python 3.13 and newer ask an authority for it
            request += ["-addext", "keyUsage=critical,keyCertSign,cRLSign"]
        if extra:
            request += ["-addext", f"subjectAltName={extra}"]
        made = subprocess.run(request, cwd=self.folder, capture_output=True, text=True, check=False)
        if made.returncode:
            missing(f"openssl cannot make certificates: {made.stderr[-200:]}")


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Tls:
    """Certificates, made once."""
    try:
        return Tls(tmp_path_factory.mktemp("tls"))
    except FileNotFoundError:
        missing("there is no openssl here")
        raise


@pytest.fixture
def good(tls: Tls) -> Iterator[str]:
    """The URL of a server with a good certificate, but for ssl_ca_certs."""
    server, port = tls.server("server")
    with server:
        yield f"rediss://:{SECRET}@localhost:{port}"


def open_url(tls: Tls, url: str, ca: str = "ca") -> str:
    """The URL with the authority to trust, without a password."""
    return url.replace(f":{SECRET}@", "") + f"?ssl_ca_certs={tls.file(ca + '.crt')}"


async def test_a_server_with_a_good_certificate_serves(tls: Tls, good: str) -> None:
    url = open_url(tls, good)
    with Client(url, namespace="tls") as client:
        client.publish("t", "a")
    async with AsyncClient(url, namespace="tls") as other:
        await other.publish("t", "b")
        assert (await other.admin.stats("t")).topics[0].stored == 2


@pytest.mark.parametrize("ca", ["other-ca", None])
async def test_an_unknown_authority_is_refused(tls: Tls, good: str, ca: str | None) -> None:
    url = open_url(tls, good, ca) if ca else good.replace(f":{SECRET}@", "")
    with pytest.raises(ConfigError, match=r"certificate of Redis .* not accepted: .*certificate"):
        Client(url).publish("t", "a")
    async with AsyncClient(url) as client:
        with pytest.raises(ConfigError, match="not accepted"):
            await client.publish("t", "a")


async def test_the_certificate_of_another_host_is_refused(tls: Tls) -> None:
    server, port = tls.server("elsewhere")
    with server:
        url = f"rediss://localhost:{port}?ssl_ca_certs={tls.file('ca.crt')}"
        with pytest.raises(ConfigError, match=r"not accepted: .*localhost"):
            Client(url).publish("t", "a")
        async with AsyncClient(url) as client:
            with pytest.raises(ConfigError, match=r"not accepted: .*localhost"):
                await client.publish("t", "a")


def test_plain_and_tls_do_not_mix_and_nothing_is_downgraded(tls: Tls, good: str) -> None:
    plain = f"rediss://localhost:{tls.plain_port}?ssl_ca_certs={tls.file('ca.crt')}"
    start = time.monotonic()
    with Client(f"{plain}&socket_connect_timeout=0.3") as client:
        parts_of(client).store.repeat_seconds = 0.1
        with pytest.raises(StoreUnavailable, match="if it has no TLS, begin the URL with redis://"):
            client.publish("t", "a")
    assert time.monotonic() - start < 10, "a handshake is waited for as long as a connection"
    port = good.rpartition(":")[2]
    shown = Shell(f"redis://localhost:{port}").fails("status", status=1)
    assert "unreachable" in shown or "TLS" in shown


def test_a_wrong_password_is_never_shown(tls: Tls, good: str) -> None:
    url = good + f"?ssl_ca_certs={tls.file('ca.crt')}"
    with pytest.raises(ConfigError, match="refused the user name or password") as caught:
        Client(url).publish("t", "a")
    for text in (
        str(caught.value),
        repr(caught.value),
        repr(Client(url)),
        repr(parts_of(Client(url)).store),
    ):
        assert SECRET not in text
    assert SECRET not in Shell(url).fails("status", status=1)


def test_a_file_that_is_not_there_is_named(tls: Tls, good: str) -> None:
    url = good + "?ssl_ca_certs=/nowhere/ca.pem"
    with pytest.raises(ConfigError, match="no such file"):
        Client(url).publish("t", "a")
