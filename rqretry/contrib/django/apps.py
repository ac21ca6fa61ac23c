"""What Django knows of the app."""

from django.apps import AppConfig


class RqretryConfig(AppConfig):
    """No models, one command."""

    name = "rqretry.contrib.django"
    label = "rqretry"
