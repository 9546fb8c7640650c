#!/usr/bin/env python3
"""unpack_kernel.py IMAGE TARGET: writes the ELF kernel that a Linux boot image (vmlinuz) holds.

QEMU starts such a file at once; the image's own decompressor would take seconds in an emulated machine.
The image's header says where the compressed kernel lies (Documentation/arch/x86/boot.rst of Linux).
"""
import lzma
import struct
import subprocess
import sys

SECTOR = 512
SETUP_SECTORS = 0x1F1  # one byte, then one more sector than it says precedes the payload's origin
MAGIC = 0x202
PAYLOAD = 0x248  # offset and length, 4 bytes each


def main(image_path, target_path):
    with open(image_path, "rb") as file:
        image = file.read()
    if image[MAGIC : MAGIC + 4] != b"HdrS":
        sys.exit(f"{image_path} is no Linux boot image")
    offset, length = struct.unpack_from("<II", image, PAYLOAD)
    start = (image[SETUP_SECTORS] + 1) * SECTOR + offset
    payload = image[start : start + length]
    if payload.startswith(b"\xfd7zXZ"):
        kernel = lzma.LZMADecompressor().decompress(payload)
    elif payload.startswith(b"\x28\xb5\x2f\xfd"):
        # The image appends the length of the unpacked kernel to the payload.
        kernel = subprocess.run(["zstd", "-dcq"], input=payload[:-4], stdout=subprocess.PIPE, check=True).stdout
    else:
        sys.exit(f"{image_path}: the kernel is compressed by neither xz nor zstd")
    if not kernel.startswith(b"\x7fELF"):
        sys.exit(f"{image_path} holds no ELF kernel")
    with open(target_path, "wb") as file:
        file.write(kernel)


if len(sys.argv) != 3:
    sys.exit(__doc__)
main(sys.argv[1], sys.argv[2])
