"""`rqretry cron`: what is shown of schedules, and what an operator does with them."""

from rqretry import Client
from rqretry.core.parts import parts_of
from rqretry.core.schedule import ScheduleRecord, Timetable
from tests.edges.cli.shell import Shell


def define(client: Client, name: str) -> None:
    """As a worker does that starts."""
    parts_of(client).store.perform(
        parts_of(client).catalog.schedules.define(
            ScheduleRecord(name, Timetable(every_s=600), body=7)
        )
    )


def test_schedules_are_listed_triggered_paused_resumed_and_deleted(
    shell: Shell, client: Client
) -> None:
    define(client, "nightly")
    (found,) = shell.json("cron", "list")["schedules"]
    assert (found["name"], found["schedule"], found["catch_up"]) == ("nightly", "every 10m", "last")
    assert "every 10m" in shell.ok("cron", "list")

    sent = shell.json("cron", "trigger", "nightly")["id"]
    shown = shell.json("message", sent)
    assert shown["topic"] == "nightly"
    assert "is paused" in shell.ok("cron", "pause", "nightly")
    assert "paused" in shell.ok("cron", "list")
    assert "is resumed, next at" in shell.ok("cron", "resume", "nightly")
    assert shell.json("cron", "delete", "nightly")["deleted"] is True
    assert [entry["verb"] for entry in shell.json("audit")["entries"]][-4:] in (
        ["trigger", "pause_schedule", "resume_schedule", "delete_schedule"],
        ["delete_schedule", "resume_schedule", "pause_schedule", "trigger"],
    )


def test_a_misspelt_schedule_gets_a_suggestion(shell: Shell, client: Client) -> None:
    define(client, "nightly")

    for verb in ("trigger", "pause", "resume", "delete"):
        refused = shell.fails("cron", verb, "nigthly", status=1)
        assert "there is no schedule 'nigthly'" in refused
        assert "did you mean nightly?" in refused
