"""A web service that publishes orders, and the handler that ships them."""

from typing import TypedDict
from uuid import UUID

from flask import Flask, Response, jsonify, request

from rqretry import (
    AmbiguousResult,
    App,
    BodyMismatch,
    InvalidArgument,
    QueueFull,
    StoreUnavailable,
)


class Order(TypedDict):
    item: str
    amount: int


app = App(timeout="2s")  # no request waits longer for Redis
orders = app.topic("orders", body=Order)


@orders.consumer(group="shipping")
def ship(order: Order) -> None:
    print("shipped", order["amount"], order["item"], flush=True)


web = Flask(__name__)


@web.put("/orders/<uuid:key>")
def place(key: UUID) -> tuple[Response, int]:
    id_ = orders.publish_sync(request.get_json(), id=f"order-{key}")
    return jsonify(id=id_, duplicate=id_.duplicate), 202


@web.errorhandler(AmbiguousResult)
@web.errorhandler(QueueFull)
@web.errorhandler(StoreUnavailable)
def try_again(error: Exception) -> tuple[Response, int, dict[str, str]]:
    return jsonify(detail=str(error)), 503, {"Retry-After": "5"}


@web.errorhandler(BodyMismatch)
def wrong_body(error: Exception) -> tuple[Response, int]:
    return jsonify(detail=str(error)), 422


@web.errorhandler(InvalidArgument)
def refused(error: Exception) -> tuple[Response, int]:
    return jsonify(detail=str(error)), 409
