"""The certificate of the gateway: the one given, or a self-signed one made at its start."""

import ssl
import tempfile
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from rqretry.core.errors import ConfigError, show

_VALID = timedelta(days=3650)


def tls_context(cert: Path | None, key: Path | None, host: str) -> ssl.SSLContext:
    """What TLS connections are accepted with. Raises ConfigError if a file cannot be used."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["h2"])
    if cert is None:
        with tempfile.TemporaryDirectory() as folder:
            made = Path(folder) / "gateway.pem"
            made.touch(mode=0o600)
            made.write_bytes(self_signed(host))
            context.load_cert_chain(made)
        return context
    try:
        context.load_cert_chain(cert, key)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(
            f"--tls-cert {show(str(cert))} cannot be used ({error}): give a PEM file, and its key"
            " with --tls-key"
        ) from None
    return context


def self_signed(host: str) -> bytes:
    """A key and its certificate for this host, as PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "rqretry gateway")])
    names: list[x509.GeneralName] = [x509.DNSName("localhost")]
    try:
        names.append(x509.IPAddress(ip_address(host)))
    except ValueError:
        names.append(x509.DNSName(host))
    now = datetime.now(UTC)  # noqa: TID251 - of this machine, which serves it
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + _VALID)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return private + certificate.public_bytes(serialization.Encoding.PEM)
