"""Shows a log in a browser: `sparklog serve --ui` and `sparklog ui`.

- `server`: HTTP, TLS and connection limits; `access`: tokens and sessions
- `http_messages`: requests and responses; `site`: routes; `result_cache`: expensive pages
- `log_browser`: topics and records; `log_handle`: the open log; `workers`: bounded reads
- `topic_pages`, `record_pages`: HTML; `json_documents`: JSON for scripts
- `record_query`: the query of a URL
- `browse/`: records and statistics of a log for people, within limits
- `report/`: a log as numbers, and as one HTML page
"""
