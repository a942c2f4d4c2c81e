"""A log as typed numbers, and these as one HTML page.

- `build`: make_report; `model`: the numbers; `directories`, `segments`, `ledger`, `growth`,
  `offline`, `batches`, `retention_preview`: compute them; the verdict on the log:
  `sparklog.service.health`
- `page` (`page_overview`, `page_health`, `page_topics`, `page_growth`, `page_segments`,
  `page_traffic`, `page_upkeep`, `page_labels`): the page and its sections
- `page_shell`, `page_parts`, `page.css`, `page.js`, `live.js`, `charts`, `scales`, `units`:
  parts that all pages share, including the pages of `sparklog.ui`
"""
