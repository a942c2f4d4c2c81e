"""A log in a browser: `serve --ui`, `sparklog ui`.

- `server`: HTTP, TLS, limits of connections; `access`: who may come, tokens; `answers`: values
- `site`: which path shows what; `result_cache`: what is made not too often
- `log_browser`: topics and records; `log_handle`: the log; `workers`: reads, a few at a time
- `topic_pages`, `record_pages`, `login_page`: HTML; `json_documents`; `record_query`: a URL's query
"""
