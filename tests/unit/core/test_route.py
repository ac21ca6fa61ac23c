"""Routes: the groups of a topic, as the partitions keep them."""

from rqretry.core.route import MAX_GROUPS, Route, RouteGroup

GROUPS = (RouteGroup("claims", 1, "push"), RouteGroup("by-hand", 250, "simple"))


def test_a_route_survives_its_encoding() -> None:
    route = Route(7, 4, GROUPS)

    assert Route.decode(7, route.encode()) == route
    assert Route.decode(7, route.encode().encode()) == route


def test_an_empty_table_is_a_topic_without_groups() -> None:
    assert Route.decode(0, b"") == Route()
    assert Route.decode(3, "") == Route(3, 1, ())


def test_a_route_without_groups_is_not_an_empty_table() -> None:
    route = Route(1, 8, ())

    assert Route.decode(1, route.encode()).partitions == 8


def test_the_largest_route_still_has_one_byte_per_group() -> None:
    groups = tuple(RouteGroup(f"g{n}", n, "push") for n in range(1, MAX_GROUPS + 1))

    decoded = Route.decode(1, Route(1, 1, groups).encode())

    assert {len(bytes((group.byte,))) for group in decoded.groups} == {1}
    assert decoded.groups == groups


def test_a_table_says_of_a_group_only_what_is_not_usual_and_old_tables_are_read() -> None:
    old = '{"p":4,"g":[["claims",1,"push"],["by-hand",250,"simple"]]}'

    assert Route(7, 4, GROUPS).encode() == old
    assert Route.decode(7, old).groups == GROUPS


def test_a_message_goes_to_the_groups_that_take_its_tag() -> None:
    groups = (
        RouteGroup("all", 1, "push"),
        RouteGroup("some", 2, "push", "paid || refunded"),
        RouteGroup("one", 250, "simple", "paid"),
    )
    route = Route.decode(3, Route(3, 1, groups).encode())

    assert route.filtered
    assert route.groups == groups
    assert route.targets("paid") == b"\x01\x02\xfa"
    assert route.targets("refunded") == b"\x01\x02"
    assert route.targets("pai") == route.targets("") == b"\x01"
    assert not Route(7, 4, GROUPS).filtered
