"""`python -m skillgen`."""

import sys

from skillgen.cli.parser import main

sys.exit(main())
