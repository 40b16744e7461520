"""Joins small published files later: the command ``epochal compact``.

Readers by manifest see every row exactly once at any time. Compaction number n has these steps:

1. The joined files are staged in a folder of their own, where no reader looks.
2. Plan n is created: which files replace which. A process that finds the name taken starts over.
3. The joined files get their names where readers look. The names contain n, so no later compaction uses them.
4. Done n is created. From now on readers by manifest list the new files instead of the old ones.
5. The old files are removed, at once or after a grace period; then removed n is created.

Plan n + 1 is created only after done n, so compactions form a sequence, each built on the one before. The next process
finishes a compaction that was interrupted. Every step is idempotent and safe to run concurrently.

If a joined file is lost between steps 2 and 4, no row is lost: the old files are all there. Done n then records that
the compaction was given up.

========================  =================================================================
`records`                 the records and their format
`live`                    which files are listed after the compactions that are done
`choosing`                which files are joined; no I/O
`joinable`                the format of a file, by its ending
`joiners`, `inspecting`   how files of each format are joined, and what they must have in common
`compactor`               the steps above
========================  =================================================================
"""
