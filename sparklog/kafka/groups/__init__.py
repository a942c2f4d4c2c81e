"""Consumer groups: the group coordinator of Kafka's brokers, on top of the log's readers.

- `coordinator`: which endpoint coordinates, and its periodic work
- `membership`: requests of members; `classic_groups`: the classic protocol; `classic_group`: a
  group
- `classic_members`: its members; `subscriptions`: encoded subscriptions and assignments
- `consumer_requests`, `consumer_groups`: the consumer protocol (KIP-848); `assignors`: its
  assignors
- `offset_requests`: OffsetCommit and OffsetFetch; `offset_store`: committed offsets
- `group_admin`: finds, lists, describes and deletes groups; `active_groups`: published group state
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
    """Return the handlers of all group APIs."""
    coordinator = Coordinator(broker)
    return {
        **GroupAdmin(broker, coordinator).apis(),
        **Membership(broker, coordinator).apis(),
        **ConsumerRequests(broker, coordinator).apis(),
        **OffsetRequests(broker, coordinator).apis(),
    }
