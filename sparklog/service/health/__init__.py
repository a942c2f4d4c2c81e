"""Health: one verdict on a log, green, amber or red, with its reasons and what helps.

- `model`: Level, Check, Health: the verdict; `limits`: from where on something is wrong
- `examiner`: examine, once; an Examiner looks again and again. Neither locks or changes anything
- `inputs`: what one look saw; `log_dir_inputs`: of log dirs, `needed_files`: files without which
  reads or writes fail; `store_inputs`: of a log
  in a store; `disk_forecast`: how long disks last
- `checks`: what was seen, judged; `words`: figures in sentences; `bounded`: no longer than so
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
