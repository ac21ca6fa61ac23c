"""The server and the lab of the integration tests."""

from tests.contract.integration.conftest import lab, lab_url, redis_server

__all__ = ["lab", "lab_url", "redis_server"]
