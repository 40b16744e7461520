#!/bin/sh
# Prints the command of a Python that is new enough, or one line that says what to do.
# With an argument it tries only that command; without, the one in .venv and then the usual names.
found=""
for candidate in ${1:-.venv/bin/python python3 python3.13 python3.12 python3.11 python}; do
    version=$("$candidate" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null) || continue
    if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
        echo "$candidate"
        exit 0
    fi
    found="${found:+$found, }$candidate is $version"
done
echo "error: Python 3.11 or newer is needed (found: ${found:-no ${1:-python3}}); install it, or name one: make PYTHON=python3.12" >&2
exit 1
