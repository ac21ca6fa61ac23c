"""A server that went back to older data: what clients read before that is not copied into it."""

from rqretry.catalog.catalog import Catalog
from rqretry.core.catalog_records import TopicRecord
from rqretry.core.route import Route
from rqretry.protocol import catalog
from tests.conftest import ServerOf
from tests.lua.conftest import world_on
from tests.lua.test_lease_numbers import mortal, restored, snapshot
from tests.support.builders import group_fields
from tests.support.world import World


def joined(world: World, client: Catalog, group: str) -> TopicRecord:
    world.perform(client.join(group, "push", ["t"]))
    return world.perform(client.store.topic("t"))


def stored_route(world: World) -> Route:
    version, table = world.client.hmget(world.keys.meta, "route", "table")
    return Route.decode(int(version), table)


def test_a_route_that_was_read_before_the_data_went_back_is_refused(server_of: ServerOf) -> None:
    world = world_on(server_of, "redis-6.2", mortal())
    world.subscribe()
    data = snapshot(world)
    world.subscribe("h")
    early, settings = world.route, group_fields(98)
    restored(world, data)
    with world.changes() as changed:
        for here in ("", "first"):
            answer = world.run(catalog.subscribe(world.keys, early, here))
            assert answer == f"from {world.now - 1000}"
            assert world.run(catalog.configure(world.group(), 9, settings, here)) == answer
    assert changed == {}


def test_a_client_that_read_a_route_before_the_data_went_back_reads_it_again(
    server_of: ServerOf,
) -> None:
    world = world_on(server_of, "redis-6.2", mortal())
    early, late = Catalog("test"), Catalog("test")
    world.perform(early.topics.create("t", 1))
    data = snapshot(world)
    joined(world, early, "g")
    record = joined(world, early, "h")
    restored(world, data)
    world.perform(early.store.install(record))
    assert stored_route(world).groups == ()

    joined(world, late, "h")
    again = joined(world, late, "g")
    world.perform(early.store.install(record))

    assert [group.name for group in again.groups] == ["h", "g"]
    assert stored_route(world).groups == again.route.groups


def test_versions_that_were_lost_are_not_given_to_other_routes_and_settings(
    server_of: ServerOf,
) -> None:
    world = world_on(server_of, "redis-6.2", mortal())
    client = Catalog("test")
    world.perform(client.topics.create("t", 1))
    joined(world, client, "g")
    data = snapshot(world)
    lost = joined(world, client, "h").version
    lost_settings = world.perform(client.groups.set("g", max_retries=1)).version
    restored(world, data)

    assert joined(world, client, "i").version > lost
    assert world.perform(client.groups.set("g", max_retries=2)).version > lost_settings
