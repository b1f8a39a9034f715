"""From abby to guard: which guard is asked, the call over HTTPS or in the same process, what crosses it."""
