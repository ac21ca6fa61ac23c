"""The App of the shop: no models here, so that it can be imported from everywhere."""

from dataclasses import dataclass
from uuid import UUID

from rqretry import App


@dataclass
class OrderPlaced:
    key: UUID


app = App(include=["shop.handlers"], timeout="2s")  # no request waits longer for Redis
orders = app.topic("orders", body=OrderPlaced)
