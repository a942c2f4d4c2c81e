"""Shows a log in a browser: `sparklog serve --ui` and `sparklog ui`.

- `server`: HTTP, TLS and connection limits; `gate`: checks of requests, headers of responses
- `access`: tokens and sessions; `page_request`: a request's fields and its query for records
- `site`: routes and errors; `log_pages`: the routes of topics and records
- `log_browser`: reads topics and records; `jobs`: bounded work; `result_cache`: expensive pages
- `topic_pages`, `record_pages`: HTML; `json_documents`: JSON for scripts
- `templating`: whole pages from the Jinja2 templates in `templates/`; `units`: numbers and times
- `browse/`: records and statistics of a log for people, within limits
- `report/`: a log as numbers, and as one HTML page
"""
