//! SUBSCRIBE and UNSUBSCRIBE.

use statestore_mqtt::Kind;
use statestore_mqtt::packet::{Subscription, SubscriptionOptions};
use statestore_mqtt::session::Violation;

use super::*;

fn subscription(filter: &str) -> Subscription<'_> {
    Subscription { filter, options: SubscriptionOptions::default() }
}

impl Rig {
    fn subscribe(&mut self, filters: &[&str], token: u64) -> Result<(), SendError> {
        let subscriptions: Vec<_> = filters.iter().map(|filter| subscription(filter)).collect();
        self.session.subscribe(&subscriptions, (), token)
    }
}

#[test]
fn suback_is_reported_with_its_reasons() {
    let mut rig = Rig::connected(options());
    rig.subscribe(&["a/+", "b"], 7).unwrap();
    let sent = rig.sent();
    let [Sent::Subscribe(id, filters)] = sent.as_slice() else { panic!("{sent:?}") };
    assert_eq!(filters, &["a/+", "b"]);
    rig.suback(*id, &[1, 0x87]);
    let events = rig.events();
    let [Event::Subscribed { token: 7, reasons, .. }] = events.as_slice() else {
        panic!("{events:?}")
    };
    assert_eq!(reasons, &[Reason::GRANTED_QOS_1, Reason::NOT_AUTHORIZED]);
}

#[test]
fn unsuback_is_reported_with_its_reasons() {
    let mut rig = Rig::connected(options());
    rig.session.unsubscribe(&["a"], (), 8).unwrap();
    let id = rig.sent()[0].id();
    rig.receive(Packet::UnsubAck(Acks { id: packet_id(id), properties: &[], reasons: &[0x11] }));
    let events = rig.events();
    assert!(
        matches!(events.as_slice(), [Event::Unsubscribed { token: 8, reasons, .. }]
            if reasons == &[Reason::NO_SUBSCRIPTION_EXISTED]),
        "{events:?}"
    );
}

#[test]
fn acknowledgement_of_another_kind_or_count_is_a_protocol_error() {
    let mut rig = Rig::connected(options());
    rig.subscribe(&["a"], 1).unwrap();
    let id = rig.sent()[0].id();
    rig.suback(id, &[0, 0]);
    let events = rig.events();
    assert_eq!(events[0], Event::Disconnected(Error::Protocol(Violation::ReasonCount)));
    assert_eq!(outcomes(&events), [(1, Err(Lost::Disconnected))]);

    let mut rig = Rig::connected(options());
    rig.subscribe(&["a"], 1).unwrap();
    let id = packet_id(rig.sent()[0].id());
    rig.receive(Packet::UnsubAck(Acks { id, properties: &[], reasons: &[0] }));
    let violation = Violation::PacketId(Kind::UnsubAck, id);
    assert_eq!(rig.events()[0], Event::Disconnected(Error::Protocol(violation)));
}

#[test]
fn requests_are_lost_with_the_connection_and_not_sent_again() {
    let mut rig = Rig::connected(options());
    rig.subscribe(&["a"], 1).unwrap();
    rig.session.unsubscribe(&["b"], (), 2).unwrap();
    rig.session.handle_disconnected();
    let events = rig.events();
    assert_eq!(events[0], Event::Disconnected(Error::ConnectionLost));
    assert_eq!(
        outcomes(&events[1..]),
        [(1, Err(Lost::Disconnected)), (2, Err(Lost::Disconnected))]
    );
    assert_eq!(rig.connect(true, &[]), []);
}

#[test]
fn features_that_the_server_lacks_are_refused() {
    let properties = [
        Property::WildcardAvailable(false),
        Property::SubscriptionIdsAvailable(false),
        Property::SharedAvailable(false),
        Property::MaximumPacketSize(40),
    ];
    let mut rig = Rig::with_server(options(), &properties);
    assert_eq!(rig.subscribe(&["a/#"], 1), Err(SendError::WildcardUnsupported));
    assert_eq!(rig.subscribe(&["$share/s/a"], 1), Err(SendError::SharedUnsupported));
    let with_id = rig.session.subscribe(&[subscription("a")], Property::SubscriptionId(1), 1);
    assert_eq!(with_id, Err(SendError::SubscriptionIdsUnsupported));
    let long = "x".repeat(40);
    assert_eq!(rig.subscribe(&[&long], 1), Err(SendError::TooLarge { size: 48, limit: 40 }));
    assert_eq!(rig.sent(), []);
    assert_eq!(rig.subscribe(&["a"], 1), Ok(()));
}

#[test]
fn invalid_requests_are_refused() {
    let mut rig = Rig::new(options());
    assert_eq!(rig.subscribe(&["a"], 1), Err(SendError::NotConnected));
    rig.connect(false, &[]);
    for filter in ["", "a/#/b", "a+", "nul\0", "$share/s"] {
        assert_eq!(rig.subscribe(&[filter], 1), Err(SendError::InvalidFilter), "{filter:?}");
        let unsubscribed = rig.session.unsubscribe(&[filter], (), 1);
        assert_eq!(unsubscribed, Err(SendError::InvalidFilter), "{filter:?}");
    }
    assert_eq!(rig.subscribe(&[], 1), Err(SendError::InvalidFilter));
    let options = SubscriptionOptions { no_local: true, ..SubscriptionOptions::default() };
    let shared = Subscription { filter: "$share/s/a", options };
    let refused = rig.session.subscribe(&[shared], (), 1);
    assert_eq!(refused, Err(SendError::InvalidFilter));
    let misplaced = rig.session.subscribe(&[subscription("a")], Property::TopicAlias(1), 1);
    assert!(matches!(misplaced, Err(SendError::InvalidProperties(_))));
    assert_eq!((rig.sent(), rig.session.publishes()), (vec![], 0));
}

#[test]
fn requests_without_an_acknowledgement_are_bounded() {
    let mut rig = Rig::connected(options().requests(2));
    rig.subscribe(&["a"], 1).unwrap();
    rig.subscribe(&["b"], 2).unwrap();
    assert_eq!(rig.subscribe(&["c"], 3), Err(SendError::Full));
    let id = rig.sent()[0].id();
    rig.suback(id, &[0]);
    assert_eq!(rig.subscribe(&["c"], 3), Ok(()));
}
