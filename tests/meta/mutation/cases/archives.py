"""Archives on Spark, and what their programs say."""

from typing import Any

from tests.meta.mutation.case import Symbol
from tests.meta.mutation.cases.common import always, case

PROMISES = "tests/edges/spark/test_promises.py::"


def merged_in_place(_original: Any) -> Any:
    """Every batch once more under another name, as in the middle of a merge."""

    def store(self: Any, batch: Any, number: int, query: str) -> Any:
        from rqretry.spark.archive_files import Stored, staged

        with staged(self.folder, batch) as (folder, found):
            for one in found:
                self.folder.take(folder, one.path, one.path)
        return Stored(sum(one.events for one in found), len(found))

    return store


def in_tasks_of_their_own(_original: Any) -> Any:
    """However small."""

    def shared(spans: Any, _room: float) -> Any:
        from rqretry.spark.history_ranges import Spans

        return [Spans([part]) for part in spans]

    return shared


def silent(_original: Any) -> Any:
    """As Python does."""
    return lambda hook: hook


def said_alone(_original: Any) -> Any:
    """What an error of Spark says, without the causes."""
    return str


CASES = (
    case(
        "R127",
        "a batch that is run again is a file more",
        Symbol("ParquetFiles.store", merged_in_place),
        f"{PROMISES}test_every_event_is_archived_once_wherever_hadoop_puts_it",
    ),
    case(
        "R127",
        "the table does not know which batches it has",
        Symbol("DeltaArchive.has_batch", always(False)),
        f"{PROMISES}test_a_delta_table_has_every_event_once_is_compacted_and_keeps_its_versions",
    ),
    case(
        "R127",
        "every partition is a task of its own, and so a file",
        Symbol("_share_tasks", in_tasks_of_their_own),
        "tests/edges/spark/test_sharing.py::"
        "test_a_quiet_system_takes_few_tasks_and_a_topic_is_in_one",
    ),
    case(
        "R128",
        "a program ends with a stack of Java and no sentence of ours",
        Symbol("first_line", silent),
        f"{PROMISES}test_the_first_line_of_a_program_is_one_sentence_of_ours",
    ),
    case(
        "R128",
        "a full disk is looked for in what Spark says, and not in the causes",
        Symbol("with_stack", said_alone),
        f"{PROMISES}test_a_full_disk_is_one_sentence_of_ours_first_in_a_program_too",
    ),
    case(
        "R129",
        "the file for a cluster has everything but rqretry",
        Symbol("_add_ourselves", always(None)),
        "tests/edges/spark/test_cluster.py::test_an_archive_runs_where_no_python_has_the_package",
    ),
)
