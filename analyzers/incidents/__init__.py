"""The pure engine: ``step`` decides what is asked, judged, published and closed. No I/O, no clock, no judging of its own."""
