"""Where the shop answers."""

from django.urls import path

from shop.views import place

urlpatterns = [path("orders/<uuid:key>", place)]
