"""What the shop stores."""

from uuid import UUID

from django.db import models


class Order(models.Model):
    key: "models.UUIDField[UUID, UUID]" = models.UUIDField(primary_key=True)
    item: "models.CharField[str, str]" = models.CharField(max_length=100)
    shipped: "models.BooleanField[bool, bool]" = models.BooleanField(default=False)
