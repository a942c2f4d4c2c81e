"""Health of a log: a verdict (green, amber or red) with reasons and commands that help.

- `model`: Level, Check, Health: the verdict, also as metrics; `limits`: thresholds of the checks
- `examiner`: `examine`, once; Examiner, repeatedly. Neither locks or changes anything
- `inputs`: what the checks judge, and its collection for a log in a bucket; `log_dir_inputs`:
collects the inputs of log dirs; `needed_files`: files without which reads or writes fail;
`disk_forecast`: when disks will be full
- `checks`: judge the inputs; `formatting`: figures and commands in sentences
"""

from sparklog.service.health.examiner import Examiner, examine
from sparklog.service.health.inputs import ServiceStatus
from sparklog.service.health.limits import LIMITS, Limits
from sparklog.service.health.model import CHECKS, Check, Health, Level, health_samples

__all__ = [
    "CHECKS", "LIMITS", "Check", "Examiner", "Health", "Level", "Limits", "ServiceStatus",
    "examine", "health_samples",
]  # fmt: skip
