#!/usr/bin/env python3
"""Prints the frequency of this x86 machine's time stamp counter in kHz.

QEMU's emulation hands the counter through. A guest kernel that measures it itself while the host is busy
gets it wrong by whole factors, and then every clock of the guest runs at the wrong speed.
"""

import ctypes
import mmap
import time

# rdtsc; shl rdx, 32; or rax, rdx; ret
CODE = b"\x0f\x31\x48\xc1\xe2\x20\x48\x09\xd0\xc3"
SPAN_NS = 50_000_000
SAMPLES = 20


def main():
    page = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    page.write(CODE)
    address = ctypes.addressof(ctypes.c_char.from_buffer(page))
    read_counter = ctypes.CFUNCTYPE(ctypes.c_uint64)(address)

    def sample():
        """Time and counter read as closely together as they ever were."""
        best = None
        for _ in range(SAMPLES):
            before = time.monotonic_ns()
            counter = read_counter()
            after = time.monotonic_ns()
            if best is None or after - before < best[0]:
                best = (after - before, (before + after) // 2, counter)
        return best[1:]

    begin_ns, begin = sample()
    time.sleep(SPAN_NS / 1e9)
    end_ns, end = sample()
    print(round((end - begin) * 1e6 / (end_ns - begin_ns)))


if __name__ == "__main__":
    main()
