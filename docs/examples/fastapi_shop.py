"""A web service that publishes orders, and the handler that ships them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated
from uuid import UUID

from fastapi import Depends, FastAPI, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel

from rqretry import AmbiguousResult, App, InvalidArgument, QueueFull, StoreUnavailable, Topic


class Order(BaseModel):
    item: str
    amount: int


app = App(timeout="2s")  # no request waits longer for Redis
topic = app.topic("orders", body=Order)


@topic.consumer(group="shipping")
async def ship(order: Order) -> None:
    print("shipped", order.amount, order.item, flush=True)


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    yield
    await app.aclose()  # connections are opened by the first publish


web = FastAPI(lifespan=lifespan)


async def try_again(_: Request, error: Exception) -> JSONResponse:
    return JSONResponse({"detail": str(error)}, 503, headers={"Retry-After": "5"})


async def refused(_: Request, error: Exception) -> JSONResponse:
    return JSONResponse({"detail": str(error)}, 409)


for temporary in (AmbiguousResult, QueueFull, StoreUnavailable):
    web.add_exception_handler(temporary, try_again)
web.add_exception_handler(InvalidArgument, refused)


def orders_topic() -> Topic[Order]:
    return topic


Orders = Annotated[Topic[Order], Depends(orders_topic)]


@web.put("/orders/{key}", status_code=202)
async def place(key: UUID, order: Order, orders: Orders) -> dict[str, str | bool]:
    id_ = await orders.publish(order, id=f"order-{key}")
    return {"id": id_, "duplicate": id_.duplicate}
