"""Joins small published files after the fact: what ``epochal compact`` does.

Readers by manifest see every row exactly once all the while. One compaction, number n:

1. The joined files are staged in a folder of their own, where no reader looks.
2. Plan n is created: what takes the place of what. Who finds the name taken was second, and starts over.
3. The joined files get their names where readers look. The names hold n, so they never come again.
4. Done n is created. At this instant readers by manifest switch from the old files to the new ones.
5. The old files are removed, at once or after a grace; then removed n is created.

Plan n + 1 is created only by one who has seen done n, so there is one row of them, each built on the one before.
Whoever comes next finishes what a dead one has begun; any step may be done by several at once, and again by one who
slept.

If a joined file is lost between 2 and 4 nothing is: the old files are all there. Done n then says that it was given up.

========================  =================================================================
`records`                 the records and how they are spelled
`live`                    which files are listed after the compactions that are done
`choosing`                which files are joined; no I/O
`formats`                 what the ending of a file says
`joiners`, `inspecting`   how files of each format become one, and what must be equal for it
`compactor`               the steps above
========================  =================================================================
"""
