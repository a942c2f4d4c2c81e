"""A web server that shows a log in a browser: `sparklog serve --ui` and `sparklog ui`.

- `server`: HTTP, TLS and connection limits
- `gate`: checks of every request, headers of every response
- `access`: tokens and sessions; `page_request`: the query parameters of a request
- `site`: routes and error pages; `log_pages`: the routes of topics and records
- `log_browser`: reads topics and records; `jobs`: blocking work in threads, with limits;
  `result_cache`: results that are expensive to compute
- `topic_pages`, `record_pages`: HTML; `json_documents`: JSON for scripts
- `templating`: HTML pages from the Jinja2 templates in `templates/`; `units`: numbers and times
- `browse/`: reads records and statistics of a log for display, within limits
- `report/`: computes the statistics of a log, and renders them as an HTML page
"""
