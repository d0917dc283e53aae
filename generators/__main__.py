"""`python -m skillgen`."""

import sys

from skillgen.cli import main

sys.exit(main())
