"""Files as they lie on a disk: opened, unpacked, bounded, read apart; whose each one is."""
