//! Long work is divided into turns, so one connection does not delay the others.

use statestore_mqtt::packet::{Filters, Unsubscribe};

use super::*;

/// A SUBSCRIBE with 1,000 filters of the maximum number of levels, and its filters.
fn large_subscribe() -> (BytesMut, Vec<String>) {
    let filters: Vec<String> =
        (0..1_000).map(|at| format!("{}{}", at % 20, "/a".repeat(199))).collect();
    let list: Vec<Subscription<'_>> = filters
        .iter()
        .map(|filter| Subscription { filter, options: SubscriptionOptions::default() })
        .collect();
    let subscriptions = Subscriptions::new(&list);
    let properties: Properties<'_> = &[];
    let mut bytes = BytesMut::new();
    let subscribe = Subscribe { id: packet_id(1), properties, subscriptions };
    Packet::Subscribe(subscribe).encode(&mut bytes).expect("an encodable packet");
    (bytes, filters)
}

/// Runs all turns of a connection. Returns the received packets and the number of turns.
fn run_turns(net: &mut Net, id: ConnectionId) -> (Vec<Received>, usize) {
    let (mut received, mut turns) = (net.receive(id), 1);
    while net.broker.has_yielded(id) {
        received.extend(net.receive(id));
        turns += 1;
    }
    (received, turns)
}

#[test]
fn large_subscribe_does_not_delay_other_connections() {
    let mut net = Net::default();
    let (bytes, filters) = large_subscribe();
    let [greedy, other] = ["greedy", "other"].map(|name| net.connect(name, CLEAN));
    let before = net.broker.stats().bytes;
    net.write(greedy, &[&bytes[..], &[0xc0, 0x00]].concat());
    assert!(net.broker.stats().bytes > before + bytes.len(), "the unfinished packet counts");
    let mut count = 0;
    let mut received = Vec::new();
    while net.broker.has_yielded(greedy) {
        assert!(!net.broker.wants_input(greedy), "reading pauses until the turns are done");
        assert_eq!(received, [], "the SUBACK follows the last turn");
        received = net.receive(greedy);
        net.write(other, &[0xc0, 0x00]);
        assert_eq!(net.receive(other), [Received::PingResp]);
        count += 1;
        if count == 100 {
            // Filters of finished turns are in effect.
            let topic = &filters[0];
            net.publish(other, topic, "early", Qos::AtMostOnce, 0);
            assert_eq!(net.receive_payloads(greedy), ["early"]);
        }
    }
    assert_eq!(received, [Received::SubAck(vec![0; 1_000]), Received::PingResp]);
    assert!(count >= 300, "{count} turns for 200,000 levels");
}

#[test]
fn large_packets_are_acknowledged_once_and_in_order() {
    let mut net = Net::default();
    let (bytes, filters) = large_subscribe();
    let greedy = net.connect("greedy", CLEAN);
    net.receive(greedy);
    let before = net.broker.stats().bytes;
    net.write(greedy, &[&bytes[..], &[0xc0, 0x00]].concat());
    let (received, count) = run_turns(&mut net, greedy);
    assert_eq!(received, [Received::SubAck(vec![0; 1_000]), Received::PingResp]);
    assert!(count >= 300, "{count} turns for 200,000 levels");
    let filters: Vec<&str> = filters.iter().map(|filter| &**filter).collect();
    let filters = Filters::new(&filters);
    net.send(
        greedy,
        Packet::Unsubscribe(Unsubscribe { id: packet_id(2), properties: &[], filters }),
    );
    let (received, count) = run_turns(&mut net, greedy);
    let reasons = [vec![0; 20], vec![0x11; 980]].concat();
    assert_eq!(received, [Received::UnsubAck(reasons)]);
    assert!(count >= 300, "{count} turns for 200,000 levels");
    net.receive(greedy);
    assert_eq!(net.broker.stats().bytes, before, "all memory is released");
}

/// A connection that closes between turns releases its unfinished packet. A persistent session
/// keeps the filters of finished turns.
#[test]
fn close_between_turns_keeps_finished_filters_only() {
    for (options, persists) in [(CLEAN, false), (PERSISTENT, true)] {
        let mut net = Net::default();
        let other = net.connect("other", CLEAN);
        net.receive(other);
        let before = net.broker.stats().bytes;
        let greedy = net.connect("greedy", options);
        let (bytes, filters) = large_subscribe();
        net.write(greedy, &bytes);
        net.receive(greedy);
        assert!(net.broker.has_yielded(greedy));
        net.close(greedy);
        net.publish(other, &filters[0], "x", Qos::AtLeastOnce, 1);
        let expected = if persists { Reason::SUCCESS } else { Reason::NO_MATCHING_SUBSCRIBERS };
        assert_eq!(net.receive(other), [Received::PubAck(1, expected)]);
        net.advance(seconds(100));
        net.receive(other);
        assert_eq!(net.broker.stats().bytes, before);
    }
}

#[test]
fn wills_due_at_the_same_time_are_published_in_turns() {
    const WILLS: usize = 40;
    let mut net = Net::default();
    let to: Vec<ConnectionId> = (0..300).map(|at| net.connect(&format!("to{at}"), CLEAN)).collect();
    for id in &to {
        net.subscribe(*id, "will", Qos::AtLeastOnce);
    }
    for at in 0..WILLS {
        let delay = [Property::WillDelay(5)];
        let payload = at.to_string();
        let options = ConnectOptions { will: Some(will("will", &payload, &delay)), ..PERSISTENT };
        let id = net.connect(&format!("from{at}"), options);
        net.close(id);
    }
    net.now += seconds(5);
    let mut payloads = Vec::new();
    while payloads.len() < WILLS {
        net.broker.handle_timeout(net.now);
        let turn = net.receive_payloads(to[0]);
        assert!((1..=10).contains(&turn.len()), "{} in one turn", turn.len());
        payloads.extend(turn);
        let is_due = net.broker.poll_timeout() == Some(Duration::ZERO);
        assert_eq!(is_due, payloads.len() < WILLS);
    }
    assert_eq!(payloads, (0..WILLS).map(|at| at.to_string()).collect::<Vec<_>>());
}

/// Each session has many subscriptions.
#[test]
fn sessions_that_expire_at_the_same_time_end_in_turns() {
    let mut net = Net::default();
    for at in 0..20 {
        let id = net.connect(&format!("{at}"), PERSISTENT);
        let filters: Vec<String> = (0..100).map(|other| format!("{at}/{other}")).collect();
        for filter in &filters {
            net.subscribe(id, filter, Qos::AtMostOnce);
        }
        net.close(id);
    }
    net.now += seconds(61);
    let mut left = 20;
    while left > 0 {
        net.broker.handle_timeout(net.now);
        let now = net.broker.stats().sessions;
        assert!((1..=4).contains(&(left - now)), "{left}, then {now}");
        left = now;
    }
    assert_eq!(net.broker.stats().bytes, 0);
}

/// Input of a connection waits for a turn while it is new, and after it needed more than one turn.
#[test]
fn new_or_costly_connection_waits_for_its_turn() {
    let second = Duration::from_secs(1);
    let mut net = Net::with_probation(Config::default(), second);
    let other = net.connect("other", CLEAN);
    net.subscribe(other, "t", Qos::AtMostOnce);
    net.advance(second);
    let new = net.connect("new", CLEAN);
    let publish_and_count = |net: &mut Net, id: ConnectionId| {
        net.publish(id, "t", "x", Qos::AtMostOnce, 0);
        (net.broker.has_yielded(id), net.receive_payloads(other).len())
    };
    assert_eq!(publish_and_count(&mut net, new), (true, 0));
    assert!(!net.broker.wants_input(new));
    net.receive(new);
    assert_eq!((net.broker.has_yielded(new), net.receive_payloads(other).len()), (false, 1));
    net.advance(second);
    assert_eq!(publish_and_count(&mut net, new), (false, 1));
    let (bytes, _) = large_subscribe();
    net.write(new, &bytes);
    while net.broker.has_yielded(new) {
        net.receive(new);
    }
    assert_eq!(
        publish_and_count(&mut net, new),
        (true, 0),
        "the previous packet needed more than one turn"
    );
    net.receive(new);
    net.advance(second);
    assert_eq!(publish_and_count(&mut net, new), (false, 2));
}

/// A CONNECT alone is handled at once. Further packets in the same input wait for a turn.
#[test]
fn packets_sent_before_the_connack_wait_for_a_turn() {
    let mut net = Net::with_probation(Config::default(), Duration::from_secs(1));
    let id = net.try_connect("a", CLEAN);
    assert!(!net.broker.has_yielded(id));
    let id = net.accept().unwrap();
    let connect = Connect {
        clean_start: true,
        keep_alive: 0,
        properties: CLEAN.properties,
        client_id: "b",
        will: None,
        user_name: None,
        password: None,
    };
    let mut bytes = BytesMut::new();
    Packet::Connect(connect).encode(&mut bytes).expect("an encodable packet");
    bytes.extend_from_slice(&[0xc0, 0x00]);
    net.write(id, &bytes);
    assert!(net.broker.has_yielded(id));
    assert_eq!(net.receive(id), [Received::ConnAck(false, Reason::SUCCESS), Received::PingResp]);
}

/// The end of a new connection waits for a turn if it publishes a will or ends many subscriptions.
#[test]
fn costly_end_of_a_new_connection_waits_for_its_turn() {
    let second = Duration::from_secs(1);
    let mut net = Net::with_probation(Config::default(), second);
    let plain = net.connect("plain", CLEAN);
    let with_will =
        net.connect("will", ConnectOptions { will: Some(will("will", "gone", &[])), ..CLEAN });
    let rests = |net: &Net, id| net.broker.should_defer_close(net.now, id);
    assert_eq!((rests(&net, plain), rests(&net, with_will)), (false, true));
    for at in 0..20 {
        net.subscribe(plain, &at.to_string(), Qos::AtMostOnce);
    }
    assert!(rests(&net, plain));
    net.advance(second);
    assert_eq!((rests(&net, plain), rests(&net, with_will)), (false, false));
}

/// The driver learns which input completes no packet, so that it is read in turns.
#[test]
fn input_that_completes_no_packet_is_reported() {
    let mut net = Net::default();
    let id = net.accept().unwrap();
    let mut bytes = BytesMut::new();
    let connect = Connect {
        clean_start: true,
        keep_alive: 0,
        properties: CLEAN.properties,
        client_id: "a",
        will: None,
        user_name: None,
        password: None,
    };
    Packet::Connect(connect).encode(&mut bytes).expect("an encodable packet");
    Packet::Publish(publish("t", "x", Qos::AtMostOnce, 0)).encode(&mut bytes).expect("a packet");
    bytes.extend_from_slice(&[0xc0, 0x00, 0xc0]);
    let mut ends = Vec::new();
    for (at, byte) in bytes.iter().enumerate() {
        assert_eq!(net.broker.is_accepted(id), !ends.is_empty());
        if net.broker.handle_bytes(net.now, id, &[*byte]) {
            ends.push(at + 1);
        }
        net.receive(id);
    }
    let whole = bytes.len() - 1;
    assert_eq!(ends, [usize::from(bytes[1]) + 2, whole - 2, whole]);
    assert!(net.broker.handle_bytes(net.now, id, &[0x00, 0xc0]), "the end of one, and a part");
    net.close(id);
    assert!(!net.broker.is_accepted(id));
    // A new connection gets a turn for each packet.
    let mut net = Net::with_probation(Config::default(), Duration::from_secs(1));
    let id = net.accept().unwrap();
    assert!(!net.broker.handle_bytes(net.now, id, &bytes[..ends[0]]));
    net.receive(id);
    net.advance(Duration::from_secs(1));
    assert!(net.broker.handle_bytes(net.now, id, &[0xc0, 0x00]));
}
