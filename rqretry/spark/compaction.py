"""Small files of the archive become larger ones; a run that is cut off is put right by the next.

What is to be merged is noted first. A reader in the moment between the new file's name and the end
of the old ones may see events twice; nothing is ever missing.
"""

import json
import uuid
from collections.abc import Iterable, Iterator

from pyarrow import fs

from rqretry.spark.archive_files import Book, books_in
from rqretry.spark.parquet_files import HIDDEN, Folder

SMALL_BYTES = 16 * 1024 * 1024
"""Files from this size on are left alone."""
MERGED_BYTES = 64 * 1024 * 1024
"""About how large a merged file gets; it is in memory while it is made."""
_LEAST = 4
_NOTES = f"{HIDDEN}merging"


def merge_small(folder: Folder, least: int = _LEAST) -> int:
    """Merge neighbours, at least `least` at a time; returns how many files there are fewer."""
    fewer = 0
    for group in _groups(folder, books_in(folder), least):
        _merge(folder, group)
        fewer += len(group) - 1
    return fewer


def finish_merges(folder: Folder) -> None:
    """Complete or forget what an earlier run was merging."""
    system, root = folder.open()
    notes = f"{root}/{_NOTES}"
    for info in system.get_file_info(fs.FileSelector(notes, allow_not_found=True)):
        if not info.path.endswith(".json"):
            system.delete_file(info.path)
            continue
        with system.open_input_stream(info.path) as stream:
            note = json.loads(stream.read())
        if system.get_file_info(f"{root}/{note['to']}").type == fs.FileType.File:
            folder.delete(note["from"])
        system.delete_file(info.path)


def _groups(folder: Folder, books: Iterable[Book], least: int) -> Iterator[list[Book]]:
    """Neighbouring small files of one folder."""
    group: list[Book] = []
    total = 0
    for book in books:
        size = folder.size(book.path)
        small, same = size < SMALL_BYTES, not group or group[-1].shelf == book.shelf
        if not (small and same and total + size <= MERGED_BYTES):
            if len(group) >= least:
                yield group
            group, total = [], 0
        if small:
            group.append(book)
            total += size
    if len(group) >= least:
        yield group


def _merge(folder: Folder, books: list[Book]) -> None:
    merged = Book(books[0].shelf, books[0].first, books[-1].last)
    system, root = folder.open()
    names = [book.path for book in books]
    with folder.begin(merged.shelf.folder, folder.read(names[0]).schema) as growing:
        for name in names:
            growing.add(folder.read(name))
        system.create_dir(f"{root}/{_NOTES}")
        note = f"{root}/{_NOTES}/{uuid.uuid4().hex}"
        with system.open_output_stream(f"{note}.part") as stream:
            stream.write(json.dumps({"to": merged.path, "from": names}).encode())
        system.move(f"{note}.part", f"{note}.json")
        growing.name(merged.file_name)
    folder.delete(names)
    system.delete_file(f"{note}.json")
