//! Clients that exceed a limit lose resources and receive the reason; other clients are not
//! affected.

use super::*;

const MEMORY: usize = 1 << 20;
const SHARE: usize = 200 << 10;

/// A broker with one megabyte of memory, and an honest client.
fn small_broker() -> (Net, ConnectionId) {
    let mut net = Net::with_limits(|limits| {
        limits.memory = MEMORY;
        limits.session_memory = SHARE;
        limits.retained_memory = SHARE;
        limits.connections = 100_000;
    });
    let honest = net.connect("honest", CLEAN);
    net.subscribe(honest, "honest", Qos::AtLeastOnce);
    (net, honest)
}

/// Checks that the honest client is served and that the memory limit holds.
fn check_unaffected(net: &mut Net, honest: ConnectionId) {
    net.publish(honest, "honest", "x", Qos::AtLeastOnce, 1);
    let [message] = &net.receive_messages(honest)[..] else { panic!("not exactly one message") };
    let id = message.id;
    net.ack(honest, id);
    assert!(net.broker.stats().bytes <= MEMORY, "{:?}", net.broker.stats());
}

#[test]
fn client_that_never_acknowledges_loses_its_session() {
    for qos in [Qos::AtLeastOnce, Qos::ExactlyOnce] {
        let (mut net, honest) = small_broker();
        let lazy = net.connect("lazy", PERSISTENT);
        net.subscribe(lazy, "t", qos);
        let from = net.connect("from", CLEAN);
        let payload = "x".repeat(1_000);
        let mut disconnects = Vec::new();
        for at in 1..=1_000 {
            net.publish(from, "t", &payload, Qos::AtLeastOnce, at);
            net.receive(from);
            let received = net.receive(lazy).into_iter();
            disconnects.extend(received.filter(|packet| matches!(packet, Received::Disconnect(_))));
            check_unaffected(&mut net, honest);
        }
        assert_eq!(disconnects, [Received::Disconnect(Reason::QUOTA_EXCEEDED)]);
        net.close(lazy);
        let back = net.try_connect("lazy", PERSISTENT);
        assert_eq!(
            net.receive(back),
            [Received::ConnAck(false, Reason::SUCCESS)],
            "the CONNACK reports the loss"
        );
        assert_eq!(net.broker.stats().evicted, 1);
    }
}

#[test]
fn client_that_does_not_read_is_not_read() {
    let (mut net, honest) = small_broker();
    let slow = net.connect("slow", CLEAN);
    for _ in 0..100_000 {
        if net.broker.wants_input(slow) {
            net.write(slow, &[0xc0, 0x00]);
        }
    }
    assert!(!net.broker.wants_input(slow), "back-pressure");
    check_unaffected(&mut net, honest);
    net.receive(slow);
    assert!(net.broker.wants_input(slow));
}

#[test]
fn sessions_and_wills_of_absent_clients_stay_within_the_memory_limit() {
    let (mut net, honest) = small_broker();
    let from = net.connect("from", CLEAN);
    let payload = "x".repeat(2_000);
    for at in 0..1_000 {
        let topic = format!("away/{at}");
        let options = ConnectOptions {
            properties: &[Property::SessionExpiry(u32::MAX)],
            will: Some(will(&topic, &payload, &[Property::WillDelay(u32::MAX)])),
            ..CLEAN
        };
        let id = net.connect(&format!("away {at}"), options);
        net.subscribe(id, "away/#", Qos::AtLeastOnce);
        net.close(id);
        net.publish(from, "away/x", "y", Qos::AtMostOnce, 0);
        check_unaffected(&mut net, honest);
    }
    assert!(net.broker.stats().evicted > 100);
}

#[test]
fn incomplete_packets_of_many_clients_stay_within_the_memory_limit() {
    let (mut net, honest) = small_broker();
    let mut slow = Vec::new();
    for at in 0..300 {
        let id = net.connect(&format!("slow {at}"), CLEAN);
        // The beginning of a packet of one megabyte.
        net.write(id, &[0x30, 0x80, 0x80, 0x40]);
        net.write(id, &[0; 8_000]);
        slow.push(id);
        let (closing, open): (Vec<_>, Vec<_>) =
            slow.into_iter().partition(|id| net.broker.is_closing(*id));
        closing.into_iter().for_each(|id| net.close(id));
        slow = open;
        check_unaffected(&mut net, honest);
    }
    assert!((50..200).contains(&slow.len()), "{} connections are open", slow.len());
}

#[test]
fn missing_or_large_connect_closes_the_connection() {
    let (mut net, honest) = small_broker();
    let silent = net.accept().unwrap();
    let large = net.accept().unwrap();
    net.write(large, &[0x10, 0xff, 0xff, 0x03]);
    assert_eq!(net.receive(large), [Received::ConnAck(false, Reason::PACKET_TOO_LARGE)]);
    net.advance(seconds(9));
    assert!(!net.broker.is_closing(silent));
    net.advance(seconds(2));
    assert!(net.broker.is_closing(silent));
    check_unaffected(&mut net, honest);
}

#[test]
fn subscriptions_over_the_limit_are_refused() {
    let (mut net, honest) = small_broker();
    let greedy = net.connect("greedy", CLEAN);
    let deep = "a/".repeat(150);
    let mut granted = 0;
    for at in 0..2_000 {
        let filter = format!("{deep}{at}");
        net.subscribe_with(greedy, &filter, SubscriptionOptions::default(), &[]);
        granted += net
            .receive(greedy)
            .iter()
            .filter(|received| **received == Received::SubAck(vec![0]))
            .count();
        check_unaffected(&mut net, honest);
    }
    assert!((1..200).contains(&granted), "{granted} subscriptions granted");
    let levels = "a/".repeat(200);
    net.subscribe_with(greedy, &levels, SubscriptionOptions::default(), &[]);
    let refused = Received::SubAck(vec![Reason::TOPIC_FILTER_INVALID.0]);
    assert_eq!(net.receive(greedy), [refused]);
}

#[test]
fn retained_messages_over_the_limit_are_refused() {
    let (mut net, honest) = small_broker();
    let greedy = net.connect("greedy", CLEAN);
    let mut refused = 0;
    for at in 1..=2_000 {
        let topic = format!("t/{at}");
        let payload = "x".repeat(500);
        let publish = Publish { retain: true, ..publish(&topic, &payload, Qos::AtLeastOnce, at) };
        net.send(greedy, Packet::Publish(publish));
        let puback = Received::PubAck(at, Reason::QUOTA_EXCEEDED);
        refused += usize::from(net.receive(greedy).contains(&puback));
        check_unaffected(&mut net, honest);
    }
    assert!((1_000..2_000).contains(&refused), "{refused}");
}

/// Retained messages for a subscription are sent in slices, and only as fast as the client reads.
#[test]
fn retained_messages_are_sent_in_slices() {
    let (mut net, honest) = small_broker();
    let from = net.connect("from", CLEAN);
    for at in 0..500 {
        let topic = format!("t/{at:04}");
        let publish = Publish { retain: true, ..publish(&topic, "x", Qos::AtMostOnce, 0) };
        net.send(from, Packet::Publish(publish));
    }
    let reader = net.connect("reader", CLEAN);
    for _ in 0..100 {
        net.subscribe(reader, "t/#", Qos::AtMostOnce);
    }
    let mut topics = Vec::new();
    let mut turns = 0;
    while let Some(due) = net.broker.poll_timeout() {
        let before = net.broker.stats().bytes;
        net.broker.handle_timeout(net.now.max(due));
        assert!(net.broker.stats().bytes < before + 32 * 1_000, "more than a slice at once");
        topics.extend(net.receive_messages(reader).into_iter().map(|message| message.topic));
        check_unaffected(&mut net, honest);
        turns += 1;
    }
    assert!(turns > 10, "{turns}");
    let expected: Vec<String> = (0..500).map(|at| format!("t/{at:04}")).collect();
    topics.dedup();
    assert_eq!(topics[topics.len().saturating_sub(500)..], expected);
}

/// Memory of closing connections does not count towards the limit, so it evicts no other client.
#[test]
fn clients_that_do_not_read_are_evicted_before_idle_sessions() {
    let (mut net, honest) = small_broker();
    let idle: Vec<ConnectionId> =
        (0..20).map(|at| net.connect(&format!("i{at}"), PERSISTENT)).collect();
    let slow: Vec<ConnectionId> = (0..30).map(|at| net.connect(&format!("d{at}"), CLEAN)).collect();
    for id in &slow {
        net.subscribe(*id, "flood", Qos::AtMostOnce);
    }
    let from = net.connect("from", CLEAN);
    let payload = "x".repeat(60_000);
    for _ in 0..8 {
        net.publish(from, "flood", &payload, Qos::AtMostOnce, 0);
        for id in &slow {
            // The output is polled but never written to a connection.
            let _ = net.broker.poll_output(net.now, *id, &mut BytesMut::new());
        }
        net.publish(honest, "honest", "x", Qos::AtMostOnce, 0);
        assert_eq!(net.receive_payloads(honest), ["x"]);
    }
    assert!(idle.iter().all(|id| !net.broker.is_closing(*id)));
    assert!(slow.iter().any(|id| net.broker.is_closing(*id)));
}

/// Input with many small messages to many subscribers is handled in several turns.
#[test]
fn many_deliveries_from_little_input_take_several_turns() {
    let mut net = Net::default();
    let to: Vec<ConnectionId> = (0..100).map(|at| net.connect(&format!("to{at}"), CLEAN)).collect();
    for id in &to {
        net.subscribe(*id, "t", Qos::AtMostOnce);
    }
    let from = net.connect("from", CLEAN);
    let mut bytes = BytesMut::new();
    for at in 0..1_000 {
        let payload = at.to_string();
        let publish = Packet::Publish(publish("t", &payload, Qos::AtMostOnce, 0));
        publish.encode(&mut bytes).unwrap();
    }
    net.write(from, &bytes);
    let (mut turns, mut payloads) = (0, net.receive_payloads(to[0]));
    while net.broker.has_yielded(from) {
        assert!(!net.broker.wants_input(from), "reading pauses until the turns are done");
        assert!(payloads.len() <= 50 * (turns + 1), "{} after {turns}", payloads.len());
        net.receive(from);
        payloads.extend(net.receive_payloads(to[0]));
        turns += 1;
    }
    assert!(turns > 10, "{turns}");
    assert_eq!(payloads, (0..1_000).map(|at| at.to_string()).collect::<Vec<_>>());
}

/// A search for the session to evict visits all of them, so it must be rare.
#[test]
fn full_memory_is_freed_for_many_messages_at_once() {
    let mut net = Net::with_limits(|limits| limits.memory = 1_000_000);
    let from = net.connect("from", CLEAN);
    let (mut messages, mut searches) = (0, 0);
    for at in 0..2_000 {
        let name = format!("away {at}");
        let before = net.broker.stats().evicted;
        let id = net.connect(&name, PERSISTENT);
        net.subscribe(id, &name, Qos::AtLeastOnce);
        net.close(id);
        net.publish(from, &name, &"x".repeat(1_000), Qos::AtLeastOnce, 1);
        assert_eq!(net.receive(from).len(), 1);
        assert!(net.broker.stats().bytes <= 1_000_000);
        let after = net.broker.stats().evicted;
        messages += usize::from(after > 0);
        searches += usize::from(after > before);
    }
    assert!(messages > 1_000, "{messages} messages with full memory");
    assert!(searches <= messages / 10, "{searches} searches for {messages} messages");
    assert!(net.broker.stats().bytes > 900_000, "only a small part is freed");
}

/// Empty sessions are evicted first, so a flood of them evicts only itself.
#[test]
fn session_limit_evicts_empty_sessions_first() {
    let mut net = Net::with_limits(|limits| limits.sessions = 10);
    let keeper = net.connect("keeper", PERSISTENT);
    net.subscribe(keeper, "kept/#", Qos::AtLeastOnce);
    net.close(keeper);
    for at in 0..50 {
        let id = net.connect(&format!("flood {at}"), PERSISTENT);
        net.close(id);
    }
    let back = net.try_connect("keeper", PERSISTENT);
    assert_eq!(net.receive(back), [Received::ConnAck(true, Reason::SUCCESS)]);
    assert_eq!(net.broker.stats().sessions, 10);
}

/// A session that ended its connection recently is more likely to be resumed.
#[test]
fn session_limit_evicts_the_longest_disconnected_session() {
    for subscribes in [false, true] {
        let mut net = Net::with_limits(|limits| limits.sessions = 3);
        net.broker.attach_host(net.now, "$host");
        let [c, a, b] = ["c", "a", "b"].map(|name| {
            let id = net.connect(name, PERSISTENT);
            if subscribes {
                net.subscribe(id, &"x".repeat(name.len() * 10), Qos::AtLeastOnce);
            }
            id
        });
        let full = net.try_connect("d", PERSISTENT);
        assert_eq!(net.receive(full), [Received::ConnAck(false, Reason::QUOTA_EXCEEDED)]);
        for id in [b, c, a] {
            net.advance(seconds(1));
            net.close(id);
        }
        net.drain_incidents();
        for (name, gone) in [("d", "b"), ("e", "c")] {
            net.connect(name, PERSISTENT);
            let [incident] = &net.drain_incidents()[..] else {
                panic!("not exactly one incident for {name}")
            };
            let expected = (IncidentKind::SessionEvicted, Some(gone));
            assert_eq!((incident.kind, incident.client_id.as_deref()), expected);
        }
        let back = net.try_connect("a", PERSISTENT);
        assert_eq!(net.receive(back), [Received::ConnAck(true, Reason::SUCCESS)]);
        assert_eq!(net.broker.stats().sessions, 4, "including the session of the host");
    }
}

#[test]
fn filters_of_one_packet_are_limited() {
    let mut net = Net::default();
    let request = |net: &mut Net, count| {
        let id = net.connect("greedy", CLEAN);
        let filters = vec!["t"; count];
        let filters = statestore_mqtt::packet::Filters::new(&filters);
        let packet =
            statestore_mqtt::packet::Unsubscribe { id: packet_id(1), properties: &[][..], filters };
        net.send(id, Packet::Unsubscribe(packet));
        let subscription = Subscription { filter: "t", options: SubscriptionOptions::default() };
        let subscriptions = vec![subscription; count];
        let subscriptions = Subscriptions::new(&subscriptions);
        net.send(
            id,
            Packet::Subscribe(Subscribe { id: packet_id(2), properties: &[], subscriptions }),
        );
        let mut received = net.receive(id);
        while net.broker.has_yielded(id) {
            received.extend(net.receive(id));
        }
        received
    };
    let expected = [Received::UnsubAck(vec![0x11; 1_000]), Received::SubAck(vec![0; 1_000])];
    assert_eq!(request(&mut net, 1_000), expected);
    assert_eq!(request(&mut net, 1_001), [Received::Disconnect(Reason::QUOTA_EXCEEDED)]);
}

/// The will of an evicted client evicts the next client, 2,000 times.
#[test]
fn chain_of_wills_that_evict_clients_ends() {
    let mut net = Net::with_limits(|limits| {
        limits.session_memory = 20_000;
        limits.connections = 10_000;
    });
    let from = net.connect("from", CLEAN);
    let payload = "x".repeat(3_000);
    for at in 0..2_000 {
        let options = ConnectOptions { will: Some(will("boom", &payload, &[])), ..CLEAN };
        let id = net.connect(&format!("c{at}"), options);
        net.subscribe(id, "boom", Qos::AtLeastOnce);
    }
    for at in 1..=8 {
        net.publish(from, "boom", &payload, Qos::AtLeastOnce, at);
    }
    net.advance(seconds(1));
    assert_eq!(net.broker.stats().evicted, 2_000);
    assert_eq!(net.broker.stats().sessions, 1);
    net.write(from, &[0xc0, 0x00]);
    assert!(net.receive(from).contains(&Received::PingResp));
}

/// Work counts by its cost: a message with a three-byte alias costs its topic of 60 KB, and a
/// filter costs a node for each level.
#[test]
fn costly_input_of_few_bytes_takes_several_turns() {
    let mut net = Net::default();
    let from = net.connect("from", CLEAN);
    let (topic, alias) = ("x".repeat(60_000), [Property::TopicAlias(1)]);
    let first = Publish { properties: &alias[..], ..publish(&topic, "", Qos::AtMostOnce, 0) };
    net.send(from, Packet::Publish(first));
    let mut bytes = BytesMut::new();
    for _ in 0..100 {
        let again = Publish { topic: "", ..first };
        Packet::Publish(again).encode(&mut bytes).unwrap();
    }
    net.receive(from);
    let turns = |net: &mut Net, bytes: &[u8]| {
        net.write(from, bytes);
        let mut turns = 1;
        while net.broker.has_yielded(from) {
            turns += 1;
            net.receive(from);
        }
        turns
    };
    let count = turns(&mut net, &bytes);
    assert!(count >= 20, "{count} turns for 6 MB");
    assert_eq!(net.broker.stats().published, 101);

    let filters: Vec<String> = (0..500).map(|at| format!("a/{at}/+/#")).collect();
    let options = SubscriptionOptions::default();
    let list: Vec<Subscription<'_>> =
        filters.iter().map(|filter| Subscription { filter, options }).collect();
    let subscriptions = Subscriptions::new(&list);
    let properties: &[Property<'_>] = &[];
    let subscribe = Packet::Subscribe(Subscribe { id: packet_id(1), properties, subscriptions });
    bytes.clear();
    for _ in 0..8 {
        subscribe.encode(&mut bytes).unwrap();
    }
    let count = turns(&mut net, &bytes);
    assert!(count >= 8, "{count} turns for eight packets");

    let count = turns(&mut net, &[0xc0, 0].repeat(8_000));
    assert!(count >= 7, "{count} turns for 8,000 packets");
}
