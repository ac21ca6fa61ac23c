"""Verbs for users: each is written once, as an operation, and served with and without asyncio.

A list of verbs is a class of `Verb` attributes. Together with SyncFacade they are plain methods,
together with AsyncFacade methods to await: what the store's `perform` is.
"""

from collections.abc import Awaitable, Callable
from functools import update_wrapper
from types import MethodType
from typing import Any, Concatenate, Generic, NamedTuple, ParamSpec, TypeVar, overload

from rqretry.core.parts import parts_of
from rqretry.protocol.command import Operation, Performer, SyncPerformer

P = ParamSpec("P")
T = TypeVar("T")
Store = TypeVar("Store")
Operations = TypeVar("Operations")


class Serving(NamedTuple, Generic[Store, Operations]):
    """What serves verbs: a store, and what the operations are methods or functions of."""

    store: Store
    operations: Operations


class Facade(Generic[Store, Operations]):
    """Verbs, and what serves them."""

    def __init__(self, store: Store, operations: Operations) -> None:
        self._parts = Serving(store, operations)


class SyncFacade(Facade[SyncPerformer, Operations]):
    """Serves verbs as plain methods."""


class AsyncFacade(Facade[Performer, Operations]):
    """Serves verbs as methods to await."""


class Verb(Generic[P, T]):
    """A method that has its facade's store perform an operation of its `operations`."""

    def __init__(self, operation: Callable[Concatenate[Any, P], Operation[T]]) -> None:
        def method(facade: Any, /, *args: P.args, **kwargs: P.kwargs) -> Any:
            store, operations = parts_of(facade)
            return store.perform(operation(operations, *args, **kwargs))

        self._method = update_wrapper(method, operation)

    @overload
    def __get__(self, facade: SyncFacade[Any], kind: Any) -> Callable[P, T]: ...
    @overload
    def __get__(self, facade: AsyncFacade[Any], kind: Any) -> Callable[P, Awaitable[T]]: ...
    def __get__(self, facade: Any, kind: Any) -> Any:
        return self._method if facade is None else MethodType(self._method, facade)
