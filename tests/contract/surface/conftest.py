"""The lab of the integration tests, on one server: what is tested here is Python."""

from tests.contract.integration.conftest import lab, lab_url

__all__ = ["lab", "lab_url"]
