"""The lab of the integration tests."""

from tests.contract.conftest import redis_server
from tests.contract.integration.conftest import lab, lab_url

__all__ = ["lab", "lab_url", "redis_server"]
