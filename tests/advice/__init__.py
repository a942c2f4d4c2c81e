"""What sparklog's messages advise, and the tests that do it.

- `scan`: collects the advice from the source code of sparklog
- `table`: reads `advice.txt`, which names the test of each piece of advice
- `test_table`: fails for advice without an entry, and for entries without advice or test
- `test_commands`: commands and options that messages quote exist, spelled as they are typed
- `test_arguments`: calls that are refused, and the calls that the refusals advise
- `test_restoring`: every kind of file and object, damaged and then restored from a copy
- `test_removing`: what messages advise to remove, delete, forget or move away
- `test_archives`: what works on a log and not on an archive

A new message whose advice has no test yet needs a test that does what the message says and checks
the promised result. Its name goes below the advice in `advice.txt`.
"""
