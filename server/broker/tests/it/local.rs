//! The host, and clients in the same process as the broker.

use std::sync::Arc;

use statestore_broker::{Acl, Busy, LocalEvent, LocalId, Redirect, Wake};

use super::*;

/// `requests` is for the host only, and `own/ID` for the client with this id.
struct HostOnly;

impl Acl for HostOnly {
    fn may_receive(&self, client_id: &str, topic: &str) -> bool {
        topic != "requests" && topic.strip_prefix("own/").is_none_or(|owner| owner == client_id)
    }
}

fn host_with_subscription() -> (Net, LocalId) {
    host_with_limits(|limits| limits.host_queue_bytes = 2_000)
}

fn host_with_limits(change: impl FnOnce(&mut Limits)) -> (Net, LocalId) {
    let mut config = Config { acl: Arc::new(HostOnly), ..Config::default() };
    change(&mut config.limits);
    let mut net = Net::new(config);
    let host = net.broker.attach_host(net.now, "$host");
    let options = SubscriptionOptions { qos: Qos::AtLeastOnce, ..SubscriptionOptions::default() };
    let subscription = Subscription { filter: "requests", options };
    assert_eq!(net.broker.subscribe_local(host, &subscription), Reason::GRANTED_QOS_1);
    (net, host)
}

/// Takes all events of the host, as text: messages with their senders, and disconnects.
fn drain_events(net: &mut Net, host: LocalId) -> Vec<String> {
    let mut events = Vec::new();
    while let Some(event) = net.broker.poll_local(net.now, host) {
        events.push(match event {
            LocalEvent::Message(message, _) => {
                let payload = message.payload();
                let text = std::str::from_utf8(&payload).unwrap();
                format!("{}: {text}", message.sender().unwrap())
            }
            LocalEvent::Gone(client_id) => format!("{client_id} disconnected"),
            LocalEvent::Detached(reason) => return vec![reason.to_string()],
        });
    }
    events
}

#[test]
fn only_the_host_receives_requests_and_disconnects_follow_them() {
    let (mut net, host) = host_with_subscription();
    let [a, b, spy] = ["a", "b", "spy"].map(|name| net.connect(name, PERSISTENT));
    net.subscribe(spy, "#", Qos::AtLeastOnce);
    for at in 1..=3 {
        net.publish(a, "requests", &at.to_string(), Qos::AtLeastOnce, at);
    }
    net.publish(b, "requests", "1", Qos::AtLeastOnce, 1);
    net.close(a);
    assert_eq!(
        drain_events(&mut net, host),
        ["b: 1", "a: 1", "a: 2", "a: 3", "a disconnected"],
        "clients take turns, and the disconnect follows the last request"
    );
    assert_eq!(net.receive_messages(spy), []);
    let again = net.connect("b", PERSISTENT);
    assert_eq!(
        drain_events(&mut net, host),
        ["b disconnected"],
        "a takeover ends the old connection"
    );
    net.publish(again, "requests", "2", Qos::ExactlyOnce, 1);
    assert_eq!(drain_events(&mut net, host), ["b: 2"]);
}

#[test]
fn requests_without_a_host_wait_for_the_next_host() {
    let (mut net, host) = host_with_subscription();
    let a = net.connect("a", CLEAN);
    net.broker.detach(net.now, host);
    let expires = [Property::MessageExpiry(5)];
    let short =
        Publish { properties: &expires[..], ..publish("requests", "short", Qos::AtMostOnce, 0) };
    net.send(a, Packet::Publish(short));
    net.publish(a, "requests", "long", Qos::AtLeastOnce, 1);
    net.close(a);
    net.advance(seconds(10));
    let host = net.broker.attach_host(net.now, "$host");
    assert_eq!(drain_events(&mut net, host), ["a: long", "a disconnected"]);
    let other = net.broker.attach_host(net.now, "$host");
    assert_eq!(drain_events(&mut net, host), ["session taken over"]);
    assert_eq!(drain_events(&mut net, other), [""; 0]);
    let refused = net.try_connect("$host", CLEAN);
    let expected = Received::ConnAck(false, Reason::CLIENT_IDENTIFIER_NOT_VALID);
    assert_eq!(net.receive(refused), [expected]);
}

#[test]
fn client_over_the_waiting_limit_is_not_read_and_loses_nothing() {
    let (mut net, host) = host_with_subscription();
    let [greedy, other] = ["greedy", "other"].map(|name| net.connect(name, CLEAN));
    for at in 1..=50 {
        net.publish(greedy, "requests", &format!("{at:0>100}"), Qos::AtLeastOnce, at);
    }
    assert!(!net.broker.wants_input(greedy) && net.broker.wants_input(other));
    let acknowledged = net.receive(greedy).len();
    assert!((5..15).contains(&acknowledged), "{acknowledged}");
    net.publish(other, "requests", "mine", Qos::AtLeastOnce, 1);
    while net.broker.poll_wake().is_some() {}
    let mut requests = Vec::new();
    while let Some(LocalEvent::Message(message, _)) = net.broker.poll_local(net.now, host) {
        requests.push((message.sender().unwrap().to_string(), message.payload()));
        // A driver does this for each wake.
        while let Some(wake) = net.broker.poll_wake() {
            if let Wake::Connection(id) = wake {
                net.receive(id);
            }
        }
    }
    assert_eq!(requests[1], ("other".to_owned(), "mine".into()), "clients take turns");
    requests.remove(1);
    let expected = (1..=50).map(|at| format!("{at:0>100}"));
    assert!(
        requests
            .iter()
            .map(|(_, payload)| &payload[..])
            .eq(expected.collect::<Vec<_>>().iter().map(|text| text.as_bytes()))
    );
    assert!(net.broker.wants_input(greedy));
}

/// A client with few requests waits for one request of another client, however many clients have
/// many requests waiting, connected or not.
#[test]
fn client_with_few_requests_waits_for_one_request_of_another() {
    for are_closed in [false, true] {
        let (mut net, host) = host_with_limits(|limits| limits.host_queue_bytes = 4_000);
        for number in 0..50 {
            let name = format!("greedy {number}");
            let greedy = net.connect(&name, CLEAN);
            for at in 1..=3 {
                net.publish(greedy, "requests", &at.to_string(), Qos::AtLeastOnce, at);
            }
            if are_closed {
                net.close(greedy);
            }
        }
        let (quiet, busy) = (net.connect("quiet", CLEAN), net.connect("busy", CLEAN));
        let next = |net: &mut Net| match net.broker.poll_local(net.now, host) {
            Some(LocalEvent::Message(message, _)) => message.sender().unwrap().to_string(),
            other => panic!("{other:?}"),
        };
        if !are_closed {
            // A client that begins gets a turn: take the first turn of each.
            (0..50).for_each(|_| assert!(next(&mut net).starts_with("greedy")));
        }
        for round in 0..10 {
            net.publish(quiet, "requests", "mine", Qos::AtMostOnce, 0);
            let pair = [next(&mut net), next(&mut net)];
            assert!(pair.contains(&"quiet".to_owned()), "{round}: {pair:?}");
        }
        for at in 1..=20 {
            net.publish(busy, "requests", "mine", Qos::AtLeastOnce, at);
        }
        let senders: Vec<String> = (0..20).map(|_| next(&mut net)).collect();
        let count = senders.iter().filter(|sender| *sender == "busy").count();
        let expected = if are_closed { 9..=11 } else { 1..=1 };
        assert!(expected.contains(&count), "{count} of 20");
    }
}

/// Requests of disconnected clients do not evict connected clients.
#[test]
fn memory_limit_drops_requests_of_disconnected_clients_first() {
    let (mut net, host) =
        host_with_limits(|limits| (limits.host_queue_bytes, limits.memory) = (2_000, 100_000));
    let honest = net.connect("honest", CLEAN);
    let payload = "x".repeat(1_000);
    for number in 0..200 {
        let ghost = net.connect(&format!("ghost {number}"), CLEAN);
        net.publish(ghost, "requests", &payload, Qos::AtMostOnce, 0);
        net.close(ghost);
        assert!(net.broker.stats().bytes <= 100_000);
    }
    net.publish(honest, "requests", "mine", Qos::AtMostOnce, 0);
    assert!(!net.is_closed(honest));
    let events = drain_events(&mut net, host);
    assert_eq!(events[0], "honest: mine");
    let gone = events.iter().filter(|event| event.ends_with("disconnected")).count();
    let requests = events.iter().filter(|event| event.contains(&payload)).count();
    assert!(
        gone == 200 && (10..150).contains(&requests),
        "{gone} disconnects, {requests} requests"
    );
    let stats = net.broker.stats();
    assert_eq!((stats.dropped, stats.evicted), (200 - requests as u64, 0));
}

#[test]
fn attached_client_over_the_waiting_limit_is_busy_until_a_wake() {
    let (mut net, host) = host_with_subscription();
    let local = net.broker.attach(net.now, "local").unwrap();
    let request = publish("requests", "0123456789", Qos::AtLeastOnce, 0);
    let mut sent = 0;
    while net.broker.publish_local(net.now, local, &request) == Ok(Reason::SUCCESS) {
        sent += 1;
    }
    assert!((5..20).contains(&sent));
    assert_eq!(net.broker.publish_local(net.now, local, &request), Err(Busy));
    while net.broker.poll_wake().is_some() {}
    assert_eq!(drain_events(&mut net, host).len(), sent);
    assert!(std::iter::from_fn(|| net.broker.poll_wake()).any(|wake| wake == Wake::Local(local)));
    assert_eq!(net.broker.publish_local(net.now, local, &request), Ok(Reason::SUCCESS));
    net.connect("local", CLEAN);
    let event = net.broker.poll_local(net.now, local);
    assert!(matches!(event, Some(LocalEvent::Detached(Reason::SESSION_TAKEN_OVER))), "{event:?}");
    net.broker.detach(net.now, local);
    assert_eq!(net.broker.attach(net.now, "$host"), Err(Reason::CLIENT_IDENTIFIER_NOT_VALID));
}

#[test]
fn delivered_message_arrives_once_in_order_unless_it_is_too_large() {
    let (mut net, host) = host_with_subscription();
    let narrow = ConnectOptions { properties: &[Property::MaximumPacketSize(50)], ..CLEAN };
    let a = net.connect("a", narrow);
    net.subscribe(a, "#", Qos::AtMostOnce);
    let notification = |payload| publish("notifications", payload, Qos::AtLeastOnce, 0);
    let response = publish("responses", "response", Qos::AtLeastOnce, 0);
    assert_eq!(net.broker.deliver(net.now, "a", &notification("one")), Reason::SUCCESS);
    assert_eq!(net.broker.publish_local(net.now, host, &response), Ok(Reason::SUCCESS));
    assert_eq!(net.broker.deliver(net.now, "a", &notification("two")), Reason::SUCCESS);
    assert_eq!(net.receive_payloads(a), ["one", "response", "two"]);
    let no_subscribers = Reason::NO_MATCHING_SUBSCRIBERS;
    assert_eq!(net.broker.deliver(net.now, "b", &notification("one")), no_subscribers);
    let large = "x".repeat(100);
    assert_eq!(net.broker.deliver(net.now, "a", &notification(&large)), Reason::SUCCESS);
    assert_eq!(net.broker.deliver(net.now, "a", &notification("three")), Reason::SUCCESS);
    assert_eq!(net.receive_payloads(a), ["three"]);
    assert_eq!(net.broker.stats().dropped, 1);
    net.close(a);
    assert_eq!(drain_events(&mut net, host), ["a disconnected"]);
    assert_eq!(net.broker.deliver(net.now, "a", &notification("late")), no_subscribers);
}

/// The host does not receive further requests of a client that does not read its responses. So
/// the responses do not exceed its memory limit, and the client stays connected.
#[test]
fn requests_wait_while_their_client_does_not_read_responses() {
    let (mut net, host) = host_with_limits(|limits| {
        limits.session_memory = 100_000;
        limits.host_queue_bytes = 50_000;
    });
    let [slow, other] = ["slow", "other"].map(|name| net.connect(name, CLEAN));
    net.subscribe(slow, "responses", Qos::AtLeastOnce);
    for at in 1..=40 {
        net.publish(slow, "requests", &at.to_string(), Qos::AtLeastOnce, at);
    }
    net.publish(other, "requests", "x", Qos::AtLeastOnce, 1);
    let payload = "a".repeat(10_000);
    let mut senders = Vec::new();
    let mut serve = |net: &mut Net| {
        while let Some(LocalEvent::Message(message, _)) = net.broker.poll_local(net.now, host) {
            let sender = message.sender().unwrap().to_string();
            if sender == "slow" {
                let response = publish("responses", &payload, Qos::AtLeastOnce, 0);
                assert_eq!(net.broker.publish_local(net.now, host, &response), Ok(Reason::SUCCESS));
            }
            senders.push(sender);
        }
        senders.len()
    };
    let first = serve(&mut net);
    assert!((3..8).contains(&first), "{first}");
    let (mut turns, mut responses) = (0, 0);
    while responses < 40 {
        while net.broker.poll_wake().is_some() {}
        let messages = net.receive_messages(slow);
        responses += messages.len();
        messages.iter().for_each(|message| net.ack(slow, message.id));
        let is_woken =
            std::iter::from_fn(|| net.broker.poll_wake()).any(|wake| wake == Wake::Local(host));
        assert!(is_woken || responses == 40, "the host receives a wake");
        serve(&mut net);
        turns += 1;
    }
    assert!(turns > 5, "{turns}");
    assert_eq!(senders.iter().filter(|sender| *sender == "other").count(), 1);
    assert_eq!(net.broker.stats().evicted, 0);
}

/// The broker stops reading a client with many waiting requests, so acknowledgements that follow
/// these requests arrive late. Requests must continue without them.
#[test]
fn requests_continue_while_acknowledgements_follow_them() {
    let (mut net, host) = host_with_limits(|limits| {
        limits.session_memory = 100_000;
        limits.host_queue_bytes = 10_000;
    });
    let a = net.connect("a", CLEAN);
    let payload = "n".repeat(10_000);
    for _ in 0..4 {
        let notification = publish("notifications", &payload, Qos::AtLeastOnce, 0);
        assert_eq!(net.broker.deliver(net.now, "a", &notification), Reason::SUCCESS);
    }
    let messages = net.receive_messages(a);
    for at in 1..=30 {
        net.publish(a, "requests", &format!("{at:0>1000}"), Qos::AtLeastOnce, at);
    }
    messages.iter().for_each(|message| net.ack(a, message.id));
    assert!(messages.len() == 4 && !net.broker.wants_input(a));
    let mut served = 0;
    loop {
        let count = drain_events(&mut net, host).len();
        served += count;
        net.receive(a);
        if count == 0 {
            break;
        }
    }
    assert_eq!(served, 30);
}

/// A client that may not receive a message does not get it as a member of a share either.
#[test]
fn shared_subscription_skips_members_that_may_not_receive() {
    let (mut net, _) = host_with_subscription();
    let [owner, thief, from] = ["owner", "thief", "from"].map(|name| net.connect(name, CLEAN));
    net.subscribe(thief, "$share/g/own/+", Qos::AtLeastOnce);
    net.subscribe(owner, "$share/g/own/+", Qos::AtLeastOnce);
    for at in 1..=10 {
        net.publish(from, "own/owner", "x", Qos::AtLeastOnce, at);
    }
    assert_eq!((net.receive_messages(owner).len(), net.receive_messages(thief).len()), (10, 0));
}

/// Memory of subscriptions does not count as unread responses.
#[test]
fn client_with_many_subscriptions_is_still_served() {
    let (mut net, host) = host_with_limits(|limits| limits.session_memory = 100_000);
    let a = net.connect("a", CLEAN);
    for at in 0..20 {
        net.subscribe(a, &format!("a/+/c/d/{at}"), Qos::AtLeastOnce);
    }
    assert!(net.broker.stats().bytes > 30_000, "{:?}", net.broker.stats());
    net.publish(a, "requests", "x", Qos::AtLeastOnce, 1);
    assert_eq!(drain_events(&mut net, host), ["a: x"]);
}

/// The broker limits the number of waiting disconnect events, so the one of `slow` is dropped. Its
/// request is not dropped.
#[test]
fn request_is_served_although_its_disconnect_event_was_dropped() {
    let (mut net, host) = host_with_limits(|limits| limits.session_memory = 100_000);
    let slow = net.connect("slow", CLEAN);
    net.subscribe(slow, "responses", Qos::AtLeastOnce);
    let payload = "a".repeat(50_000);
    let response = publish("responses", &payload, Qos::AtLeastOnce, 0);
    assert_eq!(net.broker.publish_local(net.now, host, &response), Ok(Reason::SUCCESS));
    net.publish(slow, "requests", "x", Qos::AtLeastOnce, 1);
    assert_eq!(drain_events(&mut net, host), [""; 0]);
    for at in 0..10_000 {
        let other = net.connect(&format!("other{at}"), CLEAN);
        net.close(other);
    }
    net.close(slow);
    let events = drain_events(&mut net, host);
    assert_eq!(events.len(), 10_001);
    assert!(events.contains(&"slow: x".to_owned()));
}

/// Repeated disconnects of a client are one event until the host takes it.
#[test]
fn repeated_disconnects_are_one_event() {
    let (mut net, host) = host_with_subscription();
    net.broker.detach(net.now, host);
    let before = net.broker.stats().bytes;
    for _ in 0..1_000 {
        let a = net.connect("a", CLEAN);
        net.close(a);
    }
    assert!(net.broker.stats().bytes - before < 1_000, "{:?}", net.broker.stats());
    let host = net.broker.attach_host(net.now, "$host");
    assert_eq!(drain_events(&mut net, host), ["a disconnected"]);
}

/// Server Reference: 3.2.2.3.16, 3.14.2.2.5, 4.11.
#[test]
fn clients_are_referred_to_another_server() {
    let (mut net, host) = host_with_subscription();
    let narrow = ConnectOptions { properties: &[Property::MaximumPacketSize(18)], ..PERSISTENT };
    let [a, b] =
        [("a", PERSISTENT), ("b", narrow)].map(|(name, options)| net.connect(name, options));
    let new = net.accept().unwrap();
    net.broker.redirect(net.now, Redirect::Server("10.0.0.2:1883"));
    let mut out = BytesMut::new();
    let _ = net.broker.poll_output(net.now, a, &mut out);
    let Ok(Packet::Disconnect(disconnect)) = Packet::decode(&out) else { panic!("{out:?}") };
    assert_eq!(disconnect.reason, Reason::USE_ANOTHER_SERVER);
    assert!(disconnect.properties.iter().eq([Property::ServerReference("10.0.0.2:1883")]));
    let expected = [Received::Disconnect(Reason::USE_ANOTHER_SERVER)];
    assert_eq!(net.receive(b), expected, "the reference exceeds the maximum packet size");
    assert!(net.is_closed(b) && net.receive(new).is_empty() && !net.is_closed(new));
    net.close(a);
    net.close(b);
    assert_eq!(drain_events(&mut net, host), ["a disconnected", "b disconnected"]);
    let again = net.try_connect("a", PERSISTENT);
    out.clear();
    assert_eq!(net.broker.poll_output(net.now, again, &mut out), Output::Close);
    let Ok(Packet::ConnAck(connack)) = Packet::decode(&out) else { panic!("{out:?}") };
    assert_eq!(connack.reason, Reason::USE_ANOTHER_SERVER);
    assert!(connack.properties.iter().eq([Property::ServerReference("10.0.0.2:1883")]));
    net.broker.redirect(net.now, Redirect::UnknownServer);
    let nowhere = net.try_connect("a", PERSISTENT);
    out.clear();
    assert_eq!(net.broker.poll_output(net.now, nowhere, &mut out), Output::Close);
    let Ok(Packet::ConnAck(connack)) = Packet::decode(&out) else { panic!("{out:?}") };
    assert_eq!(
        (connack.reason, connack.properties.iter().count()),
        (Reason::USE_ANOTHER_SERVER, 0)
    );
    net.broker.redirect(net.now, Redirect::None);
    let back = net.try_connect("a", PERSISTENT);
    assert_eq!(
        net.receive(back),
        [Received::ConnAck(true, Reason::SUCCESS)],
        "the session still exists"
    );
}

#[test]
fn attach_over_the_memory_limit_is_detached_with_quota_exceeded() {
    let mut net = Net::with_limits(|limits| limits.memory = 3_000);
    let other = net.connect("c", CLEAN);
    net.receive(other);
    let id = net.broker.attach(net.now, "a").expect("an id");
    assert!(net.broker.stats().bytes <= 3_000, "{:?}", net.broker.stats());
    assert!(!net.broker.is_attached(id) && !net.broker.is_connected("a"));
    let event = net.broker.poll_local(net.now, id);
    assert!(matches!(event, Some(LocalEvent::Detached(Reason::QUOTA_EXCEEDED))), "{event:?}");
    assert_eq!((net.broker.stats().evicted, net.broker.stats().sessions), (1, 1));
    net.broker.detach(net.now, id);
    net.write(other, &[0xc0, 0x00]);
    assert_eq!(net.receive(other), [Received::PingResp]);
}

/// A host that attaches with the client id of a client ends its connection and its session at once.
#[test]
fn host_takes_over_the_client_id_of_a_client() {
    let mut net = Net::default();
    let will_subscriber = net.connect("will subscriber", CLEAN);
    net.subscribe(will_subscriber, "will", Qos::AtMostOnce);
    let options = ConnectOptions { will: Some(will("will", "gone", &[])), ..CLEAN };
    let old = net.connect("host", options);
    let host = net.broker.attach_host(net.now, "host");
    assert_eq!(net.broker.poll_timeout(), None, "no deadline is left");
    assert_eq!(net.receive(old), [Received::Disconnect(Reason::SESSION_TAKEN_OVER)]);
    assert_eq!(net.receive_payloads(will_subscriber), ["gone"]);
    assert!(net.broker.is_attached(host));
}

#[test]
fn host_is_neither_disconnected_nor_rechecked() {
    /// An access control list that is no longer in force.
    struct Outdated;

    impl Acl for Outdated {
        fn is_current(&self, _: &str) -> bool {
            false
        }
    }

    let mut net = Net::new(Config { acl: Arc::new(Outdated), ..Config::default() });
    let host = net.broker.attach_host(net.now, "$host");
    net.connect("a", PERSISTENT);
    assert!(!net.broker.disconnect(net.now, "$host", Reason::NOT_AUTHORIZED));
    assert_eq!(net.broker.recheck(net.now), 1, "the session of the client alone");
    assert_eq!(drain_events(&mut net, host), ["a disconnected"]);
    net.connect("b", PERSISTENT);
}

#[test]
fn next_host_is_woken_for_the_requests_that_wait() {
    let (mut net, _) = host_with_subscription();
    let client = net.connect("a", PERSISTENT);
    net.publish(client, "requests", "1", Qos::AtLeastOnce, 1);
    while net.broker.poll_wake().is_some() {}
    let host = net.broker.attach_host(net.now, "$host");
    let wakes: Vec<_> = std::iter::from_fn(|| net.broker.poll_wake()).collect();
    assert!(wakes.contains(&Wake::Local(host)), "{wakes:?}");
    assert_eq!(drain_events(&mut net, host), ["a: 1"]);
}

#[test]
fn host_can_attach_again_after_its_session_exceeded_the_memory_limit() {
    let (mut net, host) = host_with_limits(|limits| limits.session_memory = 4_000);
    let payload = "x".repeat(5_000);
    net.broker.deliver(net.now, "$host", &publish("r", &payload, Qos::AtLeastOnce, 1));
    let detached = net.broker.poll_local(net.now, host);
    assert!(matches!(detached, Some(LocalEvent::Detached(Reason::QUOTA_EXCEEDED))), "{detached:?}");
    net.connect("a", PERSISTENT);
    let host = net.broker.attach_host(net.now, "$host");
    assert!(net.broker.is_attached(host));
    assert!(net.broker.is_connected("$host"));
}

#[test]
fn assigned_client_id_is_one_that_no_session_has() {
    let mut net = Net::default();
    for number in 0..200 {
        let id = net.connect(&format!("assigned-{number}"), PERSISTENT);
        net.close(id);
    }
    for _ in 0..100 {
        let id = net.try_connect("", PERSISTENT);
        let received = net.receive(id);
        assert!(
            matches!(received[..], [Received::ConnAck(false, Reason::SUCCESS)]),
            "{received:?}"
        );
    }
}

/// Takes all wakes. Returns whether the connection was woken.
fn is_woken(net: &mut Net, connection: ConnectionId) -> bool {
    let mut wakes = std::iter::from_fn(|| net.broker.poll_wake());
    wakes.by_ref().filter(|wake| *wake == Wake::Connection(connection)).count() > 0
}

/// A driver can then write the acknowledgement and the response together.
#[test]
fn connection_awaits_the_host_until_its_only_request_is_processed() {
    let (mut net, host) = host_with_subscription();
    let [a, b] = ["a", "b"].map(|name| net.connect(name, CLEAN));
    for client in [a, b] {
        net.publish(client, "requests", "1", Qos::AtLeastOnce, 1);
        assert!(net.broker.awaits_host(client));
    }
    is_woken(&mut net, a);
    assert!(net.broker.poll_local(net.now, host).is_some());
    assert!(net.broker.awaits_host(a), "the host processes the request");
    net.broker.deliver(net.now, "a", &publish("r", "response", Qos::AtMostOnce, 0));
    assert!(net.broker.poll_local(net.now, host).is_some());
    assert!(!net.broker.awaits_host(a) && net.broker.awaits_host(b));
    assert!(is_woken(&mut net, a));
    assert_eq!(net.receive(a).len(), 2, "the acknowledgement and the response");
    let c = net.connect("c", CLEAN);
    net.publish(c, "requests", "1", Qos::AtLeastOnce, 1);
    is_woken(&mut net, c);
    net.broker.pause_host();
    assert!(!net.broker.awaits_host(b) && !net.broker.awaits_host(c) && is_woken(&mut net, c));
    net.publish(c, "requests", "2", Qos::AtLeastOnce, 2);
    assert!(!net.broker.awaits_host(c), "the host takes no messages");
}

#[test]
fn cancelled_wake_is_not_emitted_and_the_next_one_is() {
    let mut net = Net::default();
    let a = net.connect("a", CLEAN);
    is_woken(&mut net, a);
    net.broker.deliver(net.now, "a", &publish("r", "1", Qos::AtMostOnce, 0));
    assert_eq!(net.receive_payloads(a), ["1"]);
    net.broker.cancel_wake(a);
    assert!(!is_woken(&mut net, a));
    net.broker.deliver(net.now, "a", &publish("r", "2", Qos::AtMostOnce, 0));
    assert!(is_woken(&mut net, a));
}

#[test]
fn connection_awaits_no_host_that_is_detached_or_that_parked_its_request() {
    let (mut net, host) = host_with_limits(|limits| limits.session_memory = 40_000);
    let a = net.connect("a", CLEAN);
    let large = "x".repeat(12_000);
    net.broker.deliver(net.now, "a", &publish("r", &large, Qos::AtLeastOnce, 1));
    net.publish(a, "requests", "1", Qos::AtLeastOnce, 1);
    is_woken(&mut net, a);
    assert!(net.broker.poll_local(net.now, host).is_none(), "its client has unread responses");
    assert!(!net.broker.awaits_host(a) && is_woken(&mut net, a));

    let b = net.connect("b", CLEAN);
    net.publish(b, "requests", "1", Qos::AtLeastOnce, 1);
    is_woken(&mut net, b);
    net.broker.detach(net.now, host);
    assert!(!net.broker.awaits_host(b) && is_woken(&mut net, b));
    net.publish(b, "requests", "2", Qos::AtLeastOnce, 2);
    let c = net.connect("c", CLEAN);
    net.publish(c, "requests", "1", Qos::AtLeastOnce, 1);
    assert!(!net.broker.awaits_host(b) && !net.broker.awaits_host(c), "no host is attached");
}
