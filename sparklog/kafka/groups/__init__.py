"""Consumer groups: the coordinator that Kafka's brokers are, in front of the log's readers.

- `coordinator`: which endpoint it is, and what it keeps going
- `membership`: members' requests; `classic_groups`: the classic protocol; `classic_group`: a group,
  `classic_members`: who is in it; `subscriptions`: what members say that they read
- `consumer_requests`, `consumer_groups`: the next-generation protocol (KIP-848); `assignors`: who
  reads what there
- `offset_requests`: commits asked for and made; `offset_store`: where they are kept
- `group_admin`: groups found, listed, described, deleted; `active_groups`: published state
- `timers`: deadlines; `group_errors`: error codes
"""

from sparklog.kafka.apis import Served
from sparklog.kafka.broker import Broker
from sparklog.kafka.groups.consumer_requests import ConsumerRequests
from sparklog.kafka.groups.coordinator import Coordinator
from sparklog.kafka.groups.group_admin import GroupAdmin
from sparklog.kafka.groups.membership import Membership
from sparklog.kafka.groups.offset_requests import OffsetRequests
from sparklog.kafka.messages import Api

__all__ = ["apis"]


def apis(broker: Broker) -> dict[Api, Served]:
    """Return what is served here."""
    coordinator = Coordinator(broker)
    return {
        **GroupAdmin(broker, coordinator).apis(),
        **Membership(broker, coordinator).apis(),
        **ConsumerRequests(broker, coordinator).apis(),
        **OffsetRequests(broker, coordinator).apis(),
    }
