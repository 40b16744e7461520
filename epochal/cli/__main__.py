"""``python -m epochal.cli``."""

import sys

from epochal.cli.commands import main

sys.exit(main())
