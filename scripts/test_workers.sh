#!/bin/sh
# How many tests `make test` runs at a time. Each of them has a Spark and servers of its own, some 3 GB, and leaves a
# processor idle for a quarter of its time: three keep two cores busy. With less than 12 GB there are two.
kilobytes=$(awk '/^MemTotal:/ { print $2 }' /proc/meminfo 2>/dev/null)
if [ "${kilobytes:-0}" -ge 11500000 ]; then echo 3; else echo 2; fi
