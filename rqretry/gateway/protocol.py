"""The messages of the protocol, as classes: `v2.SendMessageRequest`, `v2.Code`.

They are made from the descriptors that the published client ships, in a pool of their own: the
client's own stubs may be imported in the same process (docs/decisions/0085).
"""

from pkgutil import get_data
from types import SimpleNamespace
from typing import Any

from google.protobuf import descriptor_pool, message_factory
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.internal.enum_type_wrapper import EnumTypeWrapper

PACKAGE = "apache.rocketmq.v2"
SERVICE = f"{PACKAGE}.MessagingService"


def _load() -> tuple[SimpleNamespace, Any]:
    files = FileDescriptorSet.FromString(get_data(__package__, "rocketmq_v2.binpb")).file
    pool = descriptor_pool.DescriptorPool()
    for file in files:
        pool.AddSerializedFile(file.SerializeToString())
    names = [file.name for file in files]
    classes = message_factory.GetMessageClassesForFiles(names, pool)
    found: dict[str, Any] = {name.rpartition(".")[2]: made for name, made in classes.items()}
    for name in names:
        for enum in pool.FindFileByName(name).enum_types_by_name.values():
            found[enum.name] = EnumTypeWrapper(enum)
    return SimpleNamespace(**found), pool.FindServiceByName(SERVICE)


v2: Any
service: Any
v2, service = _load()
"""The message classes and enumerations, and the descriptor of the service."""


def set_seconds(field: Any, seconds: float) -> None:
    """Fill a Duration or a Timestamp."""
    field.seconds, field.nanos = divmod(round(seconds * 1_000_000_000), 1_000_000_000)


def seconds_of(field: Any) -> float:
    """What a Duration or a Timestamp holds."""
    return float(field.seconds + field.nanos / 1_000_000_000)


def endpoints_of(host: str, port: int) -> Any:
    """An address as routes name it."""
    scheme = v2.AddressScheme
    made = v2.Endpoints(scheme=scheme.DOMAIN_NAME)
    if host.replace(".", "").isdecimal():
        made.scheme = scheme.IPv4
    elif ":" in host:
        made.scheme = scheme.IPv6
    made.addresses.add(host=host, port=port)
    return made
