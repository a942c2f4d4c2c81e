"""The report: statistics of a whole log, and their HTML page.

- `build`: `make_report`; `model`: the classes of the statistics
- `directories`, `segments`, `ledger`, `growth`, `retention_preview`: compute the statistics; the
  health of the log comes from `sparklog.service.health`
- `page`: renders the page; `overview`, `topic_table`, `growth_charts`, `segment_maps`, `traffic`,
  `upkeep`: the sections, for the templates in `templates/report/`; `labels`: their common labels
- `charts`, `scales`: geometry for `templates/charts.html`
"""
