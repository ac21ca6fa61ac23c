"""Verbs for users: each is written once, as an operation, and served with and without asyncio.

A list of verbs is a class of `Verb` attributes. Together with SyncFacade they are plain methods,
together with AsyncFacade methods to await: what the store's `perform` is.
"""

import inspect
from collections.abc import Awaitable, Callable
from functools import update_wrapper
from types import MethodType
from typing import Any, Concatenate, Generic, NamedTuple, ParamSpec, TypeVar, get_args, overload

from rqretry.core.errors import RqretryError
from rqretry.core.limits import check_flags
from rqretry.core.parts import parts_of
from rqretry.core.public_call import for_caller
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
    """A method that has its facade's store perform an operation of its `operations`.

    It refuses arguments, and ends its tracebacks, as `hinted` functions do.
    """

    def __init__(self, operation: Callable[Concatenate[Any, P], Operation[T]]) -> None:
        flags = _flags(operation)

        def method(facade: Any, /, *args: P.args, **kwargs: P.kwargs) -> Any:
            store, operations = parts_of(facade)
            try:
                check_flags(flags, kwargs)
                return store.perform(operation(operations, *args, **kwargs))
            except (RqretryError, TypeError) as error:
                for_caller(error, method, kwargs)
                raise

        async def async_method(facade: Any, /, *args: P.args, **kwargs: P.kwargs) -> Any:
            store, operations = parts_of(facade)
            try:
                check_flags(flags, kwargs)
                return await store.perform(operation(operations, *args, **kwargs))
            except (RqretryError, TypeError) as error:
                for_caller(error, method, kwargs)
                raise

        self._sync, self._async = (
            update_wrapper(function, operation) for function in (method, async_method)
        )
        vars(method)["__signature__"] = vars(async_method)["__signature__"] = _signature(operation)

    @overload
    def __get__(self, facade: SyncFacade[Any], kind: Any) -> Callable[P, T]: ...
    @overload
    def __get__(self, facade: AsyncFacade[Any], kind: Any) -> Callable[P, Awaitable[T]]: ...
    def __get__(self, facade: Any, kind: Any) -> Any:
        method = self._async if issubclass(kind, AsyncFacade) else self._sync
        return method if facade is None else MethodType(method, facade)


def _flags(operation: Callable[..., Any]) -> dict[str, bool]:
    """Its arguments that are True or False, all given by name: whether each may be None, too."""
    kinds = {bool: False, bool | None: True}
    parameters = inspect.signature(operation).parameters.values()
    return {one.name: kinds[one.annotation] for one in parameters if one.annotation in kinds}


def _signature(operation: Callable[..., Any]) -> inspect.Signature:
    """As users see it: without what the operation works on, and with what it answers."""
    written = inspect.signature(operation)
    _, *rest = written.parameters.values()
    itself = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    answer = get_args(written.return_annotation)[-1]
    return inspect.Signature([itself, *rest], return_annotation=answer)
