"""Tests of the shop: ./manage.py test."""

from uuid import uuid4

from django.test import TestCase, TransactionTestCase

from rqretry.testing import Lab
from shop.messages import app, orders
from shop.models import Order


class PlacingTest(TestCase):
    def test_an_order_is_published_when_it_is_committed(self) -> None:
        key = uuid4()
        with Lab(app) as lab:
            with self.captureOnCommitCallbacks() as callbacks:
                answer = self.client.put(f"/orders/{key}?item=tea")
            assert answer.status_code == 202
            assert lab.admin.stats("orders").ready == 0  # not committed yet
            callbacks[0]()
            assert lab.admin.stats("orders").ready == 1


class ShippingTest(TransactionTestCase):
    def test_an_order_is_shipped(self) -> None:
        key = uuid4()
        with Lab(app) as lab:
            self.client.put(f"/orders/{key}?item=tea")
            lab.run_until_idle()
            assert lab.admin.stats(orders.name).backlog == 0
        assert Order.objects.get(key=key).shipped
