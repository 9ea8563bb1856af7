"""Hash batches on every GPU of the machine: the cuda backend.

Messages that are already in device memory are hashed there, on CuPy's current stream, and their digests stay
there. Messages in host memory are cut into chunks. Several threads for each device take the chunks in turn,
because copying them within host memory takes longer than all the rest. Each thread works on two chunks at a
time, so that one is copied while the other is hashed. When the memory of a device runs out, its threads end
one after the other; the last one halves the chunk that does not fit, and the work continues.
"""

import logging
import threading
from collections import deque
from typing import Any

import numpy as np
import numpy.typing as npt

from gpuhash import cuda_device, kernel_calls
from gpuhash.arrays import is_device_array
from gpuhash.cuda_device import CudaDevice
from gpuhash.errors import BackendUnavailableError
from gpuhash.keccak import RATE_BYTES
from gpuhash.packing import DIGEST_BYTES, Batch, Bytes
from gpuhash.reference import Algorithm
from gpuhash.sharing import share, usable_cpus

log = logging.getLogger("gpuhash")

CHUNK_BYTES = 8 << 20  # large enough for full copy speed, small enough that 64 MiB give every thread two
STREAMS = 2
COPYING_THREADS = min(4, usable_cpus())  # for each device; they copy messages and digests within host memory
MOST_CANDIDATES = 1 << 16
MOST_COUNTED = (1 << 32) - 1  # by the 32 bits in which a kernel counts candidates
SHA256_BLOCK_BYTES = 64


class CudaBackend:
    """Hashes batches and searches headers on several GPUs; without `devices`, on all that CuPy sees."""

    name = "cuda"

    def __init__(self, devices: tuple[CudaDevice, ...] | None = None) -> None:
        self.devices = devices or cuda_device.devices()

    def hash_batch(self, which: Algorithm, batch: Batch) -> Bytes:
        """Return the digests, uint8[n, 32]: on the GPU if the messages are there, else on the host."""
        if is_device_array(batch.flat):
            resident: Bytes = self._hash_resident(which, batch)
            return resident
        digests = np.empty((batch.count, DIGEST_BYTES), np.uint8)
        chunks = deque(_cut(batch, CHUNK_BYTES))
        tasks = []
        for device in self.devices:
            team = Team(chunks, min(COPYING_THREADS, len(chunks)))
            tasks += [Streamer(device, which, batch, digests, team).run for _ in range(team.n_threads)]
        share(tasks)
        return digests

    def search(self, header: bytes, target: int, start: int, count: int) -> list[int]:
        """Return, rising, the nonces whose hash may reach `target`, judged by its top 32 bits."""
        found: list[int] = []
        part = -(-count // len(self.devices))
        tasks = []
        for number, device in enumerate(self.devices):
            first = min(start + number * part, start + count)
            last = min(first + part, start + count)
            tasks.append(_Search(device, header, target, first, last, found))
        share(tasks)
        return sorted(found)

    def _hash_resident(self, which: Algorithm, batch: Batch) -> Any:
        """Hash messages that lie in the memory of a device, on that device; return the digests there."""
        flat: Any = batch.flat
        device = next(device for device in self.devices if device.number == flat.device.id)
        cupy = device.cupy
        with device.current():
            try:
                digests = cupy.empty((batch.count, DIGEST_BYTES), np.uint8)
                offsets = order = None
                if batch.limits is not None:
                    offsets = cupy.asarray(batch.limits)
                    order = cupy.asarray(block_order(which, batch.limits))
            except cupy.cuda.memory.OutOfMemoryError as error:
                raise BackendUnavailableError(
                    f"{device.name} has no memory left for {batch.count} digests; hash fewer messages at once"
                ) from error
            addresses = layout(batch.count, batch.length, flat, offsets, order)
            device.launch(kernel_calls.hash_call(which, addresses, digests.data.ptr))
        return digests


class Team:
    """Counts the threads of one GPU, and holds the queue of message ranges that the threads of all share."""

    def __init__(self, chunks: deque[tuple[int, int]], n_threads: int) -> None:
        self.chunks = chunks
        self.n_threads = n_threads
        self._lock = threading.Lock()

    def leaves_to_others(self, chunk: tuple[int, int]) -> bool:
        """Put a chunk back for the other threads of this GPU, and count this thread out.

        If it is the last one, nothing is done, and False is returned.
        """
        with self._lock:
            if self.n_threads == 1:
                return False
            self.chunks.appendleft(chunk)
            self.n_threads -= 1
            return True

    def is_done(self) -> bool:
        """Return whether the queue is empty; if so, count this thread out."""
        with self._lock:
            if self.chunks:
                return False
            self.n_threads -= 1
            return True


class Streamer:
    """Hashes chunks of a batch on one GPU in one thread, two at a time; writes the digests into `digests`."""

    def __init__(
        self, device: CudaDevice, which: Algorithm, batch: Batch, digests: Bytes, team: Team
    ) -> None:
        self.device = device
        self.which = which
        self.batch = batch
        self.digests = digests
        self.team = team

    def run(self) -> None:
        """Take chunks of messages from the queue and hash them on this GPU until the queue is empty."""
        with self.device.current():
            slots = deque(Slot(self) for _ in range(STREAMS))
            try:
                self._work(slots)
            except Exception:
                self.team.chunks.clear()  # the other threads need not go on
                raise

    def _work(self, slots: deque["Slot"]) -> None:
        chunks = self.team.chunks
        while True:
            try:
                chunk = chunks.popleft()
            except IndexError:
                self._finish(slots)
                if self.team.is_done():
                    return
                continue
            slot = slots.popleft()
            slots.append(slot)
            slot.finish()
            was_alone = self.team.n_threads == 1
            failure = self._start(slot, chunk)
            if failure is None:
                continue
            self._finish(slots)
            self.device.cupy.get_default_memory_pool().free_all_blocks()
            if self.team.leaves_to_others(chunk):
                return
            if was_alone:
                self._halve(chunk, failure)
            else:  # what another thread held then is free now
                chunks.appendleft(chunk)

    def _start(self, slot: "Slot", chunk: tuple[int, int]) -> Exception | None:
        """Start the work on a chunk; return the error if the memory of the GPU does not suffice.

        The error comes without its traceback, which would keep the arrays that were allocated before it.
        """
        try:
            slot.start(*chunk)
        except self.device.cupy.cuda.memory.OutOfMemoryError as error:
            failure: Exception = error.with_traceback(None)
            return failure
        return None

    @staticmethod
    def _finish(slots: deque["Slot"]) -> None:
        """Wait for the chunks that this thread works on, and give the memory that they held back to CuPy."""
        for slot in slots:
            slot.finish()

    def _halve(self, chunk: tuple[int, int], error: Exception) -> None:
        """Put the two halves of a chunk of messages back into the queue.

        Raises BackendUnavailableError for a chunk of a single message.
        """
        first, last = chunk
        if last - first == 1:
            size = self.batch.offsets[last] - self.batch.offsets[first]
            raise BackendUnavailableError(
                f"{self.device.name} has not enough free memory for one message of {size} bytes; "
                "use backend='cpu'"
            ) from error
        middle = (first + last) // 2
        log.warning(
            "%s is out of memory for %s messages at once; going on with halves",
            self.device.name,
            last - first,
        )
        self.team.chunks.extendleft(((middle, last), (first, middle)))


class Slot:
    """Holds a CUDA stream and the buffers of the one chunk of messages that the stream works on."""

    def __init__(self, owner: Streamer) -> None:
        self.owner = owner
        self.cupy = owner.device.cupy
        self.stream = self.cupy.cuda.Stream(non_blocking=True)
        self.pending: tuple[int, int, Any] | None = None
        self.buffers: list[Any] = []

    def start(self, first: int, last: int) -> None:
        """Start the work on messages first to last - 1, without waiting for it.

        The work copies the messages to the device, hashes them and copies the digests back.
        """
        batch, which = self.owner.batch, self.owner.which
        begin, end = _byte_range(batch, first, last)
        with self.stream:
            flat = self._upload(batch.flat[begin:end])
            offsets = order = None
            if batch.limits is not None:
                limits = batch.limits[first : last + 1] - begin
                offsets, order = self._upload(limits), self._upload(block_order(which, limits))
            digests = self.cupy.empty((last - first, DIGEST_BYTES), np.uint8)
            addresses = layout(last - first, batch.length, flat, offsets, order)
            self.owner.device.launch(kernel_calls.hash_call(which, addresses, digests.data.ptr))
            result = self._pinned(digests.shape, np.uint8)
            digests.get(stream=self.stream, out=result, blocking=False)
        self.buffers += [flat, offsets, order, digests]
        self.pending = (first, last, result)

    def finish(self) -> None:
        """Wait until the current chunk is hashed, copy its digests into the result, and drop all buffers."""
        self.stream.synchronize()
        if self.pending is not None:
            first, last, result = self.pending
            self.owner.digests[first:last] = result
            self.pending = None
        self.buffers.clear()

    def _upload(self, array: npt.NDArray[Any]) -> Any:
        """Copy an array to the device and return the copy; the copy runs while kernels run.

        The array goes through pinned memory, because only copies from pinned memory overlap with kernels.
        """
        pinned = self._pinned(array.shape, array.dtype)
        pinned[...] = array
        target = self.cupy.empty(array.shape, array.dtype)
        target.set(pinned, stream=self.stream)
        self.buffers.append(pinned)
        return target

    def _pinned(self, shape: tuple[int, ...], dtype: Any) -> Any:
        memory = self.cupy.cuda.alloc_pinned_memory(max(int(np.prod(shape)) * np.dtype(dtype).itemsize, 1))
        return np.frombuffer(memory, dtype, int(np.prod(shape))).reshape(shape)


class _Search:
    """Searches the nonces first to last - 1 of a header on one GPU.

    If a range gives more candidates than the buffer holds, both halves of the range are searched again.
    """

    def __init__(  # noqa: PLR0917 - the parts of one job
        self, device: CudaDevice, header: bytes, target: int, first: int, last: int, found: list[int]
    ) -> None:
        self.device = device
        self.header = header
        self.target = target
        self.range = (first, last)
        self.found = found

    def __call__(self) -> None:
        with self.device.current():
            for first, last in countable(*self.range):
                self._search(first, last)

    def _search(self, first: int, last: int) -> None:
        cupy = self.device.cupy
        candidates = cupy.zeros(1 + MOST_CANDIDATES, np.uint32)
        for call in kernel_calls.search_calls(
            self.header,
            self.target,
            first,
            last - first,
            found=candidates.data.ptr,
            capacity=MOST_CANDIDATES,
        ):
            self.device.launch(call)
        result = candidates.get()
        if result[0] <= MOST_CANDIDATES:
            self.found.extend(result[1 : 1 + int(result[0])].tolist())
            return
        middle = (first + last) // 2
        self._search(first, middle)
        self._search(middle, last)


def countable(first: int, last: int) -> list[tuple[int, int]]:
    """Cut the nonces first to last - 1 into ranges in which a kernel can count every nonce as a candidate.

    Only the range of all nonces is cut: its count could come back to 0.
    """
    if last - first <= MOST_COUNTED:
        return [(first, last)]
    middle = (first + last) // 2
    return [(first, middle), (middle, last)]


def block_order(which: Algorithm, limits: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the message numbers sorted by number of blocks, so that the threads of a warp end together."""
    sha2 = kernel_calls.module_of(which) == "sha256"
    block_bytes, least_padding = (SHA256_BLOCK_BYTES, 9) if sha2 else (RATE_BYTES, 1)
    blocks = (np.diff(limits) + (least_padding - 1)) // block_bytes + 1
    return np.argsort(blocks, kind="stable")


def layout(count: int, length: int | None, flat: Any, offsets: Any, order: Any) -> kernel_calls.Layout:
    """Return the device addresses of a batch's arrays as a Layout; offsets and order may be None.

    `length` is that of all messages, or None for mixed lengths.
    """
    flat_address, offsets_address, order_address = (
        array.data.ptr if array is not None else 0 for array in (flat, offsets, order)
    )
    return kernel_calls.Layout(
        flat=flat_address,
        count=count,
        length=-1 if length is None else length,
        offsets=offsets_address,
        order=order_address,
    )


def _byte_range(batch: Batch, first: int, last: int) -> tuple[int, int]:
    if batch.limits is not None:
        return int(batch.limits[first]), int(batch.limits[last])
    length = batch.length or 0
    return first * length, last * length


def _cut(batch: Batch, chunk_bytes: int) -> list[tuple[int, int]]:
    """Return ranges of messages of a batch that take about `chunk_bytes` each, digests included."""
    cost = batch.size_bytes + batch.count * DIGEST_BYTES
    chunks = max(-(-cost // chunk_bytes), 1)
    if batch.limits is None:
        edges = np.linspace(0, batch.count, chunks + 1).astype(np.int64)
    else:
        sizes = batch.limits - batch.limits[0] + np.arange(batch.count + 1) * DIGEST_BYTES
        edges = np.searchsorted(sizes, np.linspace(0, sizes[-1], chunks + 1))
        edges[-1] = batch.count
    edges = np.unique(edges)
    return list(zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True))
