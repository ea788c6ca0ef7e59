from __future__ import annotations

import sys

from gmlfm.cli import main

sys.exit(main())
