"""`python -m horolog.bench.windows`: see `shapes`."""

from .shapes import SEGMENTS, first_looks, main

main()
looks = first_looks()
print(
    f"\n{SEGMENTS:,} segments: {looks.at_first * 1e3:.1f} ms at first, then "
    f"{looks.after_roll * 1e6:.0f} us after a roll and {looks.after_removal * 1e6:.0f} us after a "
    "removal"
)
