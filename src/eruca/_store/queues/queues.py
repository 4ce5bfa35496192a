"""All consume queues of a store, by topic and queue number."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from eruca._ground.digits import read_digits
from eruca._ground.limits import RECORD_TOPIC_BYTES_MAX
from eruca._store.filesystem import FileSystem
from eruca._store.log.mappool import MapPool
from eruca._store.queues.consumequeue import ConsumeQueue
from eruca._wire.names import check_topic
from eruca.errors import InvalidName, StoreError, StoreLayoutError

# A queue number is a directory name; Java's topics stop far below this.
QUEUE_ID_MAX = 2**31 - 1


class Queues:
    """The consume queues under one directory."""

    def __init__(self, disk: FileSystem, directory: Path, segment_bytes: int, pool: MapPool | None = None) -> None:
        self._disk = disk
        self._directory = directory
        self._segment_bytes = segment_bytes
        self._pool = pool or MapPool()
        self._queues: dict[tuple[str, int], ConsumeQueue] = {}
        #: As `get`, with topic and queue id as one tuple; a slave looks up every queue of every run of records.
        self.find: Callable[[tuple[str, int]], ConsumeQueue | None] = self._queues.get
        # Topics whose files are being deleted.
        self._leaving: set[str] = set()

    def load(self, *, writable: bool = True) -> None:
        """Open every queue that has files; when writable, a queue with a damaged file is opened without that file."""
        damaged: StoreLayoutError | None = None
        for topic in self._disk.list(self._directory):
            directory = self._directory / topic
            try:
                check_topic(topic, RECORD_TOPIC_BYTES_MAX)
            except InvalidName as error:
                raise StoreLayoutError(f"{directory} is not a topic: {error}", hint="move it away") from None
            if not self._disk.is_directory(directory):
                raise StoreLayoutError(f"{directory} is a file where a topic's directory belongs", hint="move it away")
            for number in self._disk.list(directory):
                if number.startswith("."):
                    continue  # a segment that was being created when the process died
                if not is_queue_number(number) or not self._disk.is_directory(directory / number):
                    raise StoreLayoutError(f"{directory / number} is not a queue number", hint="move it away")
                queue = self._make(topic, int(number))
                queue.load(writable=writable)
                self._queues[topic, queue.queue_id] = queue
                if queue.chain.misfits:
                    damaged = damaged or StoreLayoutError(
                        queue.chain.misfit_reason, hint="set mappedFileSizeConsumeQueue to the size of the files"
                    )
        if damaged is not None and not any([queue.chain.segments for queue in self._queues.values()]):
            raise damaged  # no file has the expected size, so the option is wrong and not the files

    def _make(self, topic: str, queue_id: int) -> ConsumeQueue:
        return ConsumeQueue(
            self._disk,
            self._directory / topic / str(queue_id),
            self._segment_bytes,
            topic=topic,
            queue_id=queue_id,
            pool=self._pool,
        )

    def get(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """The queue, or None when nothing was ever written to it."""
        return self._queues.get((topic, queue_id))

    def find_end(self, topic: str, queue_id: int) -> int:
        """The offset of the next message of a queue; 0 when nothing was ever written to it."""
        queue = self._queues.get((topic, queue_id))
        return 0 if queue is None else queue.max_offset

    def get_or_make(self, topic: str, queue_id: int) -> ConsumeQueue:
        """The queue, created empty if it is new; files appear with the first entry."""
        queue = self._queues.get((topic, queue_id))
        if queue is None:
            check_key(topic, queue_id)
            if topic in self._leaving:
                raise StoreError(f"topic {topic} is being deleted", hint="try again in a moment")
            queue = self._queues[topic, queue_id] = self._make(topic, queue_id)
        return queue

    def __iter__(self) -> Iterator[ConsumeQueue]:
        return iter(sorted(self._queues.values(), key=lambda queue: (queue.topic, queue.queue_id)))

    def values(self) -> list[ConsumeQueue]:
        """The queues, unordered; may be called from another thread."""
        return list(self._queues.values())

    def __len__(self) -> int:
        return len(self._queues)

    def end_position(self) -> int:
        """End of the last record any queue points at, -1 when there is none."""
        return max((queue.end_position for queue in self._queues.values()), default=-1)

    def detach_topic(self, topic: str) -> Callable[[], None]:
        """Remove the queues of a topic; the returned function deletes their files and may run in a thread.

        Until it has run, the topic gets no new queues: their files would be deleted with the old ones.
        """
        check_topic(topic, RECORD_TOPIC_BYTES_MAX)
        gone = [self._queues.pop(key) for key in [key for key in self._queues if key[0] == topic]]
        self._leaving.add(topic)

        def remove() -> None:
            try:
                for queue in gone:
                    queue.destroy()
                self._disk.remove_directory(self._directory / topic)
            finally:
                self._leaving.discard(topic)

        return remove

    def clear(self) -> None:
        """Delete every queue."""
        for topic in {topic for topic, _ in self._queues}:
            self.detach_topic(topic)()

    def sync(self) -> None:
        """Return when every entry of every queue is on the disk."""
        for queue in list(self._queues.values()):
            queue.sync()

    def close(self) -> None:
        """Close every file."""
        for queue in self._queues.values():
            queue.close()
        self._queues.clear()


def check_key(topic: str, queue_id: int) -> None:
    """Raise InvalidName for a topic or number no queue can have: a damaged record can contain any name."""
    check_topic(topic, RECORD_TOPIC_BYTES_MAX)
    if not 0 <= queue_id <= QUEUE_ID_MAX:
        raise InvalidName(f"queue {queue_id} of topic {topic}: a queue number is 0 or more")


def is_queue_number(name: str) -> bool:
    """Is this the name of a queue's directory? `00` is not: it would be the same queue as `0`."""
    number = read_digits(name)
    return number is not None and name == str(number) and number <= QUEUE_ID_MAX
