"""Health of a log: a verdict (green, amber or red) with reasons and commands that help.

- `model`: Level, Check, Health: the verdict; `limits`: thresholds of the checks
- `examiner`: `examine`, once; Examiner, repeatedly. Neither locks or changes anything
- `inputs`: what the checks judge; `log_dir_inputs`: collects the inputs of log dirs,
`store_inputs`: of a log in a bucket; `needed_files`: files without which reads or writes fail;
`disk_forecast`: when disks will be full
- `checks`: judge the inputs; `formatting`: figures in sentences; `call_timeout`: calls with a
  timeout
- `gauges`: the verdict as metrics
"""

from sparklog.service.health.examiner import Examiner, examine
from sparklog.service.health.gauges import health_samples
from sparklog.service.health.inputs import ServiceStatus
from sparklog.service.health.limits import LIMITS, Limits
from sparklog.service.health.model import CHECKS, Check, Health, Level

__all__ = [
    "CHECKS", "LIMITS", "Check", "Examiner", "Health", "Level", "Limits", "ServiceStatus",
    "examine", "health_samples",
]  # fmt: skip
