"""What the shop answers."""

from uuid import UUID

from django.db import transaction
from django.http import HttpRequest, JsonResponse

from rqretry import AmbiguousResult, QueueFull, StoreUnavailable
from rqretry.contrib.django import publish_on_commit
from shop.messages import OrderPlaced, orders
from shop.models import Order


def place(request: HttpRequest, key: UUID) -> JsonResponse:
    try:
        with transaction.atomic():
            Order.objects.get_or_create(key=key, defaults={"item": request.GET["item"]})
            publish_on_commit(orders, OrderPlaced(key), id=f"order-{key}")
    except (AmbiguousResult, QueueFull, StoreUnavailable) as error:
        # The order is stored. The caller repeats the request, and the message is published.
        return JsonResponse({"detail": str(error)}, status=503, headers={"Retry-After": "5"})
    return JsonResponse({"key": key}, status=202)
