"""A topic's compression at the command line."""

from rqretry import Client
from tests.edges.cli.shell import Shell


def test_topic_set_compress_from_and_what_show_says_of_it(shell: Shell, client: Client) -> None:
    client.admin.create_topic("orders")
    assert "compress" not in shell.ok("topic", "show", "orders")
    assert "compress_from" not in shell.json("topic", "show", "orders")
    assert shell.json("topic", "set", "orders", "--compress-from", "4096")["compress_from"] == 4096
    assert shell.json("topic", "show", "orders")["compression_ratio"] is None
    client.publish_many("orders", ["much the same " * 1000, "small"])

    shown = shell.json("topic", "show", "orders")
    assert shown["compress_from"] == 4096
    assert shown["compression_ratio"] > 10
    assert "topic orders compresses bodies of 4.0 KiB and more: " in shell.ok(
        "topic", "show", "orders"
    )
    error = shell.fails("topic", "set", "orders", "--compress-from", "4194305", status=2)
    assert "4194305" in error
    assert shell.json("topic", "set", "orders", "--compress-from", "0")["compress_from"] is None
