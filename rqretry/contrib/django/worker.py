"""The App that the setting RQRETRY_APP names, with Django set up around its handlers.

`manage.py rqretry_worker` runs it, in worker processes that import this module. Every command that
takes MODULE:APP takes it, too, where DJANGO_SETTINGS_MODULE is set.
"""

import functools
from dataclasses import replace
from typing import Any

import django
from asgiref.sync import sync_to_async
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import close_old_connections

from rqretry.consumer.registry import ConsumerSpec, Handler
from rqretry.core.parts import parts_of
from rqretry.supervision.app_loader import load_app

TARGET = f"{__name__}:app"


def named_app() -> str:
    """What RQRETRY_APP names. Raises ImproperlyConfigured where there is no such setting."""
    target = getattr(settings, "RQRETRY_APP", None)
    if not isinstance(target, str):
        raise ImproperlyConfigured(
            'the setting RQRETRY_APP is missing: name the App in it, such as "shop.messages:app"'
        )
    return target


def with_connections(spec: ConsumerSpec) -> ConsumerSpec:
    """A handler that finds no database connection that is broken or too old, and leaves none.

    One that runs in a process of its own is left as it is.
    """
    if spec.in_process:
        return spec
    wrap = _around_async if spec.is_async else _around_plain
    return replace(spec, handler=wrap(spec.handler))


def _around_plain(handler: Handler) -> Handler:
    @functools.wraps(handler)
    def handle(*args: Any, **kwargs: Any) -> Any:
        close_old_connections()
        try:
            return handler(*args, **kwargs)
        finally:
            close_old_connections()

    return handle


def _around_async(handler: Handler) -> Handler:
    close = sync_to_async(close_old_connections)  # in the thread where Django's own calls run

    @functools.wraps(handler)
    async def handle(*args: Any, **kwargs: Any) -> Any:
        await close()
        try:
            return await handler(*args, **kwargs)
        finally:
            await close()

    return handle


django.setup()
app = load_app(named_app())
parts_of(app).consumers[:] = map(with_connections, parts_of(app).consumers)
