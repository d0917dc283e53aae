"""The same training run twice with only a flag flipped: step time and memory compared, losses tracked."""
