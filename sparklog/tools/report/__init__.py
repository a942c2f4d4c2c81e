"""A log as typed numbers, and those as one HTML page.

- `build`: make_report; `model`: the numbers; `directories`, `segments`, `ledger`, `growth`,
  `health`, `retention_preview`: where each of them comes from
- `page` (`page_overview`, `page_segments`, `page_traffic`, `page_upkeep`, `page_parts`), `html`,
  `charts`, `units`: the page; `live`: the page over HTTP
"""
