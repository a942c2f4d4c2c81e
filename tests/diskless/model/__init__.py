"""Random schedules of the real code over a store that answers badly, judged by an oracle.

Several writers, an administrator, two services and two readers use one log. Requests are lost,
late, or done twice; processes sleep, die between any two requests, or go on beside a successor.

- `processes`: what each of them does; `world`: the bucket, the log, and how the library is asked
- `oracle`: folds what lands, by rules of its own, and looks at every promise after each effect
- `virtual`: time, locks and random names of the library, as the schedule has them
- `simulation`: one schedule, from its seed to its end
- `mutations`: each rule of the protocol switched off, and the first seed that shows it
- `places`: the places in the source that implement each rule, and what switches each off
- `switching`: those of these switches that schedules reach, played one by one

    python -m tests.diskless.model --seeds 1000               the protocol as it stands
    python -m tests.diskless.model --seeds 1000 --rule all    each rule off, its first seed
    python -m tests.diskless.model --places                   where each rule is implemented
"""
