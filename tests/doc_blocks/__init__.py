"""The code of the README and of every page, run as it stands.

pages    which pages there are, and their blocks: found by Sybil
session  runs a page from its first block to its last, in a directory of its own
shown    what is printed against what the page says

A page is one session. Python blocks share a namespace, `spark` is there where one names it, as in
pyspark; a block `output` is what the block before it prints. `console` blocks have `$ ` before each
command and what it prints below; `sh` blocks are commands alone. A block with `title="NAME"` is a
file that those after it find. `...` stands for any text. What differs from run to run (times, ids,
durations, sizes) may differ. `/data`, `/etc/sparklog`, `/tmp/tour`, `s3://bucket` and the ports of
Kafka, Prometheus and the live page are others' in a test.

In comments of Markdown, which neither the site nor GitHub shows:

    <!-- invisible-code-block: python    code that a page needs and no reader
    <!-- skip: next "why" -->            the next block can't run here
    <!-- ends-with: 1 -->                the exit code of the next block's last command

`python -m tests.doc_blocks --write [PAGE ...]` writes what is printed into the pages.
"""
