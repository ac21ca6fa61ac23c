"""What the workers do."""

from shop.messages import OrderPlaced, orders
from shop.models import Order


@orders.consumer(group="shipping", max_retries=8)
def ship(placed: OrderPlaced) -> None:
    order = Order.objects.get(key=placed.key)
    order.shipped = True
    order.save()
