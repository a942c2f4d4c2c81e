"""A log as typed numbers, and these as one HTML page.

- `build`: make_report; `model`: the numbers; `directories`, `segments`, `ledger`, `growth`,
  `retention_preview`: compute them; the verdict on the log:
  `sparklog.service.health`
- `page`: the whole page; `overview`, `topic_table`, `growth_charts`, `segment_maps`, `traffic`,
  `upkeep`: the values of its sections, for the templates in `templates/report/`; `labels`
- `charts`, `scales`: geometry for `templates/charts.html`
"""
