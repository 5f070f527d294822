"""What readers of archives, compressed files, images and videos say of one that is damaged.

Sources: ``mz_zip_get_error_string`` of miniz 2 (torch's archives), zlib 1.3's messages, ``error_private.c`` of zstd 1.5, the
exceptions of CPython 3.13's zipfile, gzip and pickle, safetensors 0.6, Pillow 11, FFmpeg 7.
"""

from __future__ import annotations

DAMAGED = """
damaged_file: failed finding central directory
damaged_file: invalid header or archive is corrupted
damaged_file: unsupported multidisk archive
damaged_file: decompression failed or archive is corrupted
damaged_file: CRC-32 check failed
damaged_file: not a ZIP archive
damaged_file: File is not a zip file
damaged_file: Bad magic number for central directory
damaged_file: Bad magic number for file header
damaged_file: Bad CRC-32 for file
damaged_file: incorrect header check
damaged_file: incorrect data check
damaged_file: incorrect length check
damaged_file: invalid stored block lengths
damaged_file: invalid block type
damaged_file: invalid code lengths set
damaged_file: invalid distance too far back
damaged_file: unknown compression method
damaged_file: Data corruption detected
damaged_file: Restored data doesn't match checksum
damaged_file: Unknown frame descriptor
damaged_file: Not a gzipped file
damaged_file: CRC check failed
damaged_file: Compressed file ended before the end-of-stream marker was reached
damaged_file: pickle data was truncated
damaged_file: unpickling stack underflow
damaged_file InvalidHeaderDeserialization InvalidHeaderStart HeaderTooLarge HeaderTooSmall InvalidHeaderLength
damaged_file MetadataIncompleteBuffer TensorInvalidInfo
damaged_file: header too large
damaged_file: header too small
damaged_file: invalid header deserialization
damaged_file: incomplete metadata, file not fully covered
damaged_file: image file is truncated…
damaged_file: cannot identify image file…
damaged_file: broken PNG file…
damaged_file: broken data stream when reading image file
damaged_file: unrecognized data stream contents when reading image file
damaged_file: moov atom not found
damaged_file: Invalid data found when processing input
"""
