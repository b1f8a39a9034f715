"""The replica of the lists on a guard's disk: its files, writer, feed and matcher."""
