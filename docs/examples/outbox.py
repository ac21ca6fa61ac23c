"""Orders in SQLite with an outbox: a message for each order that is committed, whatever dies.

python outbox.py place tea     stores an order and its message in one transaction
python outbox.py relay         publishes what is in the outbox, for ever
"""

import json
import sqlite3
import sys
import time
from typing import Any
from uuid import uuid4

from rqretry import App, Client, Message, OutgoingMessage, RqretryError

if __name__ == "__main__":  # what ends this program is one line, and status 1
    sys.excepthook = lambda kind, error, _: print(f"{kind.__name__}: {error}", file=sys.stderr)

app = App()
shipped: set[str] = set()

SCHEMA = """
CREATE TABLE IF NOT EXISTS orders (id TEXT PRIMARY KEY, item TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS outbox (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    topic TEXT NOT NULL,
    body TEXT NOT NULL
);
"""


def connect(path: str = "shop.sqlite3") -> sqlite3.Connection:
    db = sqlite3.connect(path)
    db.executescript(SCHEMA)
    return db


def place(db: sqlite3.Connection, item: str) -> str:
    order = uuid4().hex
    body = json.dumps({"order": order, "item": item})
    with db:  # one transaction: both rows, or none
        db.execute("INSERT INTO orders VALUES (?, ?)", (order, item))
        row = (f"order-{order}", "orders", body)
        db.execute("INSERT INTO outbox (id, topic, body) VALUES (?, ?, ?)", row)
    return order


def relay(db: sqlite3.Connection, client: Client) -> int:
    """Publish the oldest rows, then delete them; how many."""
    rows = db.execute("SELECT number, id, topic, body FROM outbox ORDER BY number LIMIT 100")
    by_topic: dict[str, list[tuple[int, OutgoingMessage]]] = {}
    for number, id_, topic, body in rows.fetchall():
        message = OutgoingMessage(body=json.loads(body), id=id_)
        by_topic.setdefault(topic, []).append((number, message))
    for topic, outgoing in by_topic.items():
        client.publish_many(topic, [message for _, message in outgoing])
        with db:
            db.executemany("DELETE FROM outbox WHERE number = ?", [(n,) for n, _ in outgoing])
    return sum(map(len, by_topic.values()))


def relay_for_ever(db: sqlite3.Connection) -> None:
    while True:
        try:
            pause_s = 0.0 if relay(db, app.client) else 0.5
        except RqretryError as error:  # the rows are still there
            print(error, file=sys.stderr)
            pause_s = 5.0
        time.sleep(pause_s)


@app.consumer("orders", group="shipping")
def ship(message: Message[dict[str, Any]]) -> None:
    shipped.add(message.body["order"])  # harmless when it happens twice


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["place", item]:
            print(place(connect(), item))
        case ["relay"]:
            relay_for_ever(connect())
        case _:
            sys.exit(__doc__)
