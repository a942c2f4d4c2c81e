"""A log as typed numbers, and those as one HTML page.

- `build`: make_report; `model`: the numbers; `directories`, `segments`, `ledger`, `growth`,
  `offline`, `batches`, `retention_preview`: where each of them comes from; whether all is well:
  `sparklog.service.health`
- `page` (`page_overview`, `page_health`, `page_topics`, `page_growth`, `page_segments`,
  `page_traffic`, `page_upkeep`, `page_labels`): the page and its sections
- `page_shell`, `page_parts`, `page.css`, `page.js`, `live.js`, `charts`, `scales`, `units`:
  what all pages are made of, those of `sparklog.tools.live` too
"""
