//! Whoever takes too much loses it, is told so, and hurts nobody else.

use super::*;

const MEMORY: usize = 1 << 20;
const SHARE: usize = 200 << 10;

/// A broker with a megabyte, and somebody honest on it.
fn small() -> (Net, ConnectionId) {
    let mut net = Net::limited(|limits| {
        limits.memory = MEMORY;
        limits.share = SHARE;
        limits.retained = SHARE;
        limits.connections = 100_000;
    });
    let honest = net.connect("honest", HELLO);
    net.subscribe(honest, "honest", Qos::AtLeastOnce);
    (net, honest)
}

/// The honest one goes on, and no more is held than may be.
fn unhurt(net: &mut Net, honest: ConnectionId) {
    net.publish(honest, "honest", "x", Qos::AtLeastOnce, 1);
    let [message] = &net.heard(honest)[..] else { panic!("one message") };
    let id = message.id;
    net.ack(honest, id);
    assert!(net.broker.stats().bytes <= MEMORY, "{:?}", net.broker.stats());
}

#[test]
fn who_acknowledges_nothing() {
    for qos in [Qos::AtLeastOnce, Qos::ExactlyOnce] {
        let (mut net, honest) = small();
        let lazy = net.connect("lazy", KEPT);
        net.subscribe(lazy, "t", qos);
        let from = net.connect("from", HELLO);
        let payload = "x".repeat(1_000);
        let mut told = Vec::new();
        for at in 1..=1_000 {
            net.publish(from, "t", &payload, Qos::AtLeastOnce, at);
            net.seen(from);
            told.extend(
                net.seen(lazy).into_iter().filter(|seen| matches!(seen, Seen::Disconnect(_))),
            );
            unhurt(&mut net, honest);
        }
        assert_eq!(told, [Seen::Disconnect(Reason::QUOTA_EXCEEDED)]);
        net.close(lazy);
        let back = net.try_connect("lazy", KEPT);
        assert_eq!(net.seen(back), [Seen::ConnAck(false, Reason::SUCCESS)], "and knows it");
        assert_eq!(net.broker.stats().evicted, 1);
    }
}

#[test]
fn who_reads_nothing() {
    let (mut net, honest) = small();
    let deaf = net.connect("deaf", HELLO);
    for _ in 0..100_000 {
        if net.broker.wants_input(deaf) {
            net.write(deaf, &[0xc0, 0x00]);
        }
    }
    assert!(!net.broker.wants_input(deaf), "what it sends stays in the network");
    unhurt(&mut net, honest);
    net.seen(deaf);
    assert!(net.broker.wants_input(deaf));
}

#[test]
fn sessions_wills_and_queues_of_those_who_are_away() {
    let (mut net, honest) = small();
    let from = net.connect("from", HELLO);
    let payload = "x".repeat(2_000);
    for at in 0..1_000 {
        let topic = format!("away/{at}");
        let hello = Hello {
            properties: &[Property::SessionExpiry(u32::MAX)],
            will: Some(will(&topic, &payload, &[Property::WillDelay(u32::MAX)])),
            ..HELLO
        };
        let id = net.connect(&format!("away {at}"), hello);
        net.subscribe(id, "away/#", Qos::AtLeastOnce);
        net.close(id);
        net.publish(from, "away/x", "y", Qos::AtMostOnce, 0);
        unhurt(&mut net, honest);
    }
    assert!(net.broker.stats().evicted > 100);
}

#[test]
fn half_a_packet_of_many() {
    let (mut net, honest) = small();
    let mut slow = Vec::new();
    for at in 0..300 {
        let id = net.connect(&format!("slow {at}"), HELLO);
        // A megabyte, of which this is the beginning.
        net.write(id, &[0x30, 0x80, 0x80, 0x40]);
        net.write(id, &[0; 8_000]);
        slow.push(id);
        let (ended, left): (Vec<_>, Vec<_>) =
            slow.into_iter().partition(|id| net.broker.is_closing(*id));
        ended.into_iter().for_each(|id| net.close(id));
        slow = left;
        unhurt(&mut net, honest);
    }
    assert!((50..200).contains(&slow.len()), "{} are left", slow.len());
}

#[test]
fn who_says_nothing_or_much_before_a_connect() {
    let (mut net, honest) = small();
    let silent = net.accept().unwrap();
    let large = net.accept().unwrap();
    net.write(large, &[0x10, 0xff, 0xff, 0x03]);
    assert_eq!(net.seen(large), [Seen::ConnAck(false, Reason::PACKET_TOO_LARGE)]);
    net.pass(seconds(9));
    assert!(!net.broker.is_closing(silent));
    net.pass(seconds(2));
    assert!(net.broker.is_closing(silent));
    unhurt(&mut net, honest);
}

#[test]
fn subscriptions_without_end() {
    let (mut net, honest) = small();
    let greedy = net.connect("greedy", HELLO);
    let deep = "a/".repeat(150);
    let mut granted = 0;
    for at in 0..2_000 {
        let filter = format!("{deep}{at}");
        net.subscribe_with(greedy, &filter, SubscriptionOptions::default(), &[]);
        granted += net.seen(greedy).iter().filter(|seen| **seen == Seen::SubAck(vec![0])).count();
        unhurt(&mut net, honest);
    }
    assert!((1..200).contains(&granted), "{granted}: the others are told that it is enough");
    let levels = "a/".repeat(200);
    net.subscribe_with(greedy, &levels, SubscriptionOptions::default(), &[]);
    let refused = Seen::SubAck(vec![Reason::TOPIC_FILTER_INVALID.0]);
    assert_eq!(net.seen(greedy), [refused]);
}

#[test]
fn retained_messages_without_end() {
    let (mut net, honest) = small();
    let greedy = net.connect("greedy", HELLO);
    let mut refused = 0;
    for at in 1..=2_000 {
        let topic = format!("t/{at}");
        let payload = "x".repeat(500);
        let publish = Publish { retain: true, ..publish(&topic, &payload, Qos::AtLeastOnce, at) };
        net.send(greedy, Packet::Publish(publish));
        let told = Seen::PubAck(at, Reason::QUOTA_EXCEEDED);
        refused += usize::from(net.seen(greedy).contains(&told));
        unhurt(&mut net, honest);
    }
    assert!((1_000..2_000).contains(&refused), "{refused}");
}

/// A subscription to all that is retained is served in slices, and only as fast as its client reads.
#[test]
fn everything_that_is_retained_at_once() {
    let (mut net, honest) = small();
    let from = net.connect("from", HELLO);
    for at in 0..500 {
        let topic = format!("t/{at:04}");
        let publish = Publish { retain: true, ..publish(&topic, "x", Qos::AtMostOnce, 0) };
        net.send(from, Packet::Publish(publish));
    }
    let reader = net.connect("reader", HELLO);
    for _ in 0..100 {
        net.subscribe(reader, "t/#", Qos::AtMostOnce);
    }
    let mut heard = Vec::new();
    let mut turns = 0;
    while let Some(due) = net.broker.poll_timeout() {
        let before = net.broker.stats().bytes;
        net.broker.handle_timeout(net.now.max(due));
        assert!(net.broker.stats().bytes < before + 32 * 1_000, "a slice");
        heard.extend(net.heard(reader).into_iter().map(|message| message.topic));
        unhurt(&mut net, honest);
        turns += 1;
    }
    assert!(turns > 10, "{turns}");
    let expected: Vec<String> = (0..500).map(|at| format!("t/{at:04}")).collect();
    heard.dedup();
    assert_eq!(heard[heard.len().saturating_sub(500)..], expected);
}

/// Those that are on their way out are not counted, so nobody else goes for them.
#[test]
fn many_that_do_not_read_take_nobody_else_along() {
    let (mut net, honest) = small();
    let idle: Vec<ConnectionId> = (0..20).map(|at| net.connect(&format!("i{at}"), KEPT)).collect();
    let deaf: Vec<ConnectionId> = (0..30).map(|at| net.connect(&format!("d{at}"), HELLO)).collect();
    for id in &deaf {
        net.subscribe(*id, "flood", Qos::AtMostOnce);
    }
    let from = net.connect("from", HELLO);
    let payload = "x".repeat(60_000);
    for _ in 0..8 {
        net.publish(from, "flood", &payload, Qos::AtMostOnce, 0);
        for id in &deaf {
            // Given out, and never written.
            let _ = net.broker.poll_output(net.now, *id, &mut BytesMut::new());
        }
        net.publish(honest, "honest", "x", Qos::AtMostOnce, 0);
        assert_eq!(net.payloads(honest), ["x"]);
    }
    assert!(idle.iter().all(|id| !net.broker.is_closing(*id)));
    assert!(deaf.iter().any(|id| net.broker.is_closing(*id)));
}

/// A piece of many small messages to many subscribers is done in turns.
#[test]
fn much_to_do_in_few_bytes() {
    let mut net = Net::default();
    let to: Vec<ConnectionId> = (0..100).map(|at| net.connect(&format!("to{at}"), HELLO)).collect();
    for id in &to {
        net.subscribe(*id, "t", Qos::AtMostOnce);
    }
    let from = net.connect("from", HELLO);
    let mut bytes = BytesMut::new();
    for at in 0..1_000 {
        let payload = at.to_string();
        let publish = Packet::Publish(publish("t", &payload, Qos::AtMostOnce, 0));
        publish.encode(&mut bytes).unwrap();
    }
    net.write(from, &bytes);
    let (mut turns, mut heard) = (0, net.payloads(to[0]));
    while net.broker.rests(from) {
        assert!(!net.broker.wants_input(from), "what else it sends waits");
        assert!(heard.len() <= 50 * (turns + 1), "{} after {turns}", heard.len());
        net.seen(from);
        heard.extend(net.payloads(to[0]));
        turns += 1;
    }
    assert!(turns > 10, "{turns}");
    assert_eq!(heard, (0..1_000).map(|at| at.to_string()).collect::<Vec<_>>());
}

/// Who comes and goes under many names throws out itself, as long as it leaves nothing.
#[test]
fn as_many_sessions_as_are_allowed() {
    let mut net = Net::limited(|limits| limits.sessions = 10);
    let keeper = net.connect("keeper", KEPT);
    net.subscribe(keeper, "kept/#", Qos::AtLeastOnce);
    net.close(keeper);
    for at in 0..50 {
        let id = net.connect(&format!("flood {at}"), KEPT);
        net.close(id);
    }
    let back = net.try_connect("keeper", KEPT);
    assert_eq!(net.seen(back), [Seen::ConnAck(true, Reason::SUCCESS)]);
    assert_eq!(net.broker.stats().sessions, 10);
}

/// The newest has just been promised its session.
#[test]
fn who_has_been_away_for_longest_gives_way() {
    for subscribes in [false, true] {
        let mut net = Net::limited(|limits| limits.sessions = 3);
        net.broker.attach_host(net.now, "$host");
        let [c, a, b] = ["c", "a", "b"].map(|name| {
            let id = net.connect(name, KEPT);
            if subscribes {
                net.subscribe(id, &"x".repeat(name.len() * 10), Qos::AtLeastOnce);
            }
            id
        });
        let full = net.try_connect("d", KEPT);
        assert_eq!(net.seen(full), [Seen::ConnAck(false, Reason::QUOTA_EXCEEDED)]);
        for id in [b, c, a] {
            net.pass(seconds(1));
            net.close(id);
        }
        net.told();
        for (name, gone) in [("d", "b"), ("e", "c")] {
            net.connect(name, KEPT);
            let [told] = &net.told()[..] else { panic!("one for {name}") };
            let expected = (IncidentKind::GaveWay, Some(gone));
            assert_eq!((told.kind, told.client_id.as_deref()), expected);
        }
        let back = net.try_connect("a", KEPT);
        assert_eq!(net.seen(back), [Seen::ConnAck(true, Reason::SUCCESS)]);
        assert_eq!(net.broker.stats().sessions, 4, "with the host's");
    }
}

/// One that is not served hears why, as long as they are few; whoever wants to keep these places takes nobody else's.
#[test]
fn connections_beyond_a_limit_are_told_so() {
    let [here, there] = ["192.0.2.1", "192.0.2.2"].map(|peer| peer.parse().ok());
    for (peers, refused, kind, reason) in [
        ([here, there], Refused::Connections, IncidentKind::Connections, Reason::SERVER_BUSY),
        ([here, here], Refused::Address, IncidentKind::Address, Reason::QUOTA_EXCEEDED),
    ] {
        let mut net = Net::limited(|limits| {
            (limits.connections, limits.turned_away) = (2, 2);
            limits.connections_per_address = 2;
            if refused == Refused::Address {
                limits.connections = 10;
            }
        });
        let accept = |net: &mut Net, peer| net.broker.handle_accept(net.now, peer);
        let served = peers.map(|peer| accept(&mut net, peer).expect("room"));
        for _ in 0..3 {
            let [asks, silent] = [0; 2].map(|_| accept(&mut net, here).expect("a place"));
            assert_eq!(accept(&mut net, here), Err(refused));
            // Neither of them is read from any further, nor keeps its place.
            let hello = Connect {
                clean_start: true,
                keep_alive: 0,
                properties: &[][..],
                client_id: "late",
                will: None,
                user_name: None,
                password: None,
            };
            net.send(asks, Packet::Connect(hello));
            net.publish(asks, "t", "x", Qos::AtLeastOnce, 1);
            assert_eq!(net.seen(asks), [Seen::ConnAck(false, reason)]);
            assert!(net.is_closed(asks) && !net.broker.is_connected("late"));
            let told = net.told();
            let [told] = &told[..] else { panic!("one: {told:?}") };
            assert_eq!((told.kind, told.client_id.as_deref()), (kind, Some("late")));
            net.close(asks);
            net.write(silent, b"GET");
            net.close(silent);
            net.pass(seconds(10));
            net.told();
        }
        let [one, _] = served;
        net.close(one);
        accept(&mut net, here).expect("room");
        assert_eq!(net.broker.stats().connections, 2);
    }
}

#[test]
fn many_filters_in_one_packet() {
    let mut net = Net::default();
    let ask = |net: &mut Net, count| {
        let id = net.connect("greedy", HELLO);
        let filters = vec!["t"; count];
        let filters = statestore_mqtt::packet::Filters::new(&filters);
        let packet =
            statestore_mqtt::packet::Unsubscribe { id: number(1), properties: &[][..], filters };
        net.send(id, Packet::Unsubscribe(packet));
        let subscription = Subscription { filter: "t", options: SubscriptionOptions::default() };
        let subscriptions = vec![subscription; count];
        let subscriptions = Subscriptions::new(&subscriptions);
        net.send(
            id,
            Packet::Subscribe(Subscribe { id: number(2), properties: &[], subscriptions }),
        );
        let mut seen = net.seen(id);
        while net.broker.rests(id) {
            seen.extend(net.seen(id));
        }
        seen
    };
    let answers = [Seen::UnsubAck(vec![0x11; 1_000]), Seen::SubAck(vec![0; 1_000])];
    assert_eq!(ask(&mut net, 1_000), answers);
    assert_eq!(ask(&mut net, 1_001), [Seen::Disconnect(Reason::QUOTA_EXCEEDED)]);
}

/// Whoever is thrown out leaves a will that throws out the next one, a thousand times over.
#[test]
fn wills_that_lead_to_wills() {
    let mut net = Net::limited(|limits| {
        limits.share = 20_000;
        limits.connections = 10_000;
    });
    let from = net.connect("from", HELLO);
    let payload = "x".repeat(3_000);
    for at in 0..2_000 {
        let hello = Hello { will: Some(will("boom", &payload, &[])), ..HELLO };
        let id = net.connect(&format!("c{at}"), hello);
        net.subscribe(id, "boom", Qos::AtLeastOnce);
    }
    for at in 1..=8 {
        net.publish(from, "boom", &payload, Qos::AtLeastOnce, at);
    }
    net.pass(seconds(1));
    assert_eq!(net.broker.stats().evicted, 2_000);
    assert_eq!(net.broker.stats().sessions, 1);
    net.write(from, &[0xc0, 0x00]);
    assert!(net.seen(from).contains(&Seen::PingResp));
}

/// Three bytes stand for a topic of 60 KB, and a filter takes a node for each of its levels: both count.
#[test]
fn few_bytes_that_take_long() {
    let mut net = Net::default();
    let from = net.connect("from", HELLO);
    let (topic, alias) = ("x".repeat(60_000), [Property::TopicAlias(1)]);
    let first = Publish { properties: &alias[..], ..publish(&topic, "", Qos::AtMostOnce, 0) };
    net.send(from, Packet::Publish(first));
    let mut bytes = BytesMut::new();
    for _ in 0..100 {
        let again = Publish { topic: "", ..first };
        Packet::Publish(again).encode(&mut bytes).unwrap();
    }
    net.seen(from);
    let turns = |net: &mut Net, bytes: &[u8]| {
        net.write(from, bytes);
        let mut turns = 1;
        while net.broker.rests(from) {
            turns += 1;
            net.seen(from);
        }
        turns
    };
    let taken = turns(&mut net, &bytes);
    assert!(taken >= 20, "{taken} turns for 6 MB");
    assert_eq!(net.broker.stats().published, 101);

    let filters: Vec<String> = (0..500).map(|at| format!("a/{at}/+/#")).collect();
    let options = SubscriptionOptions::default();
    let list: Vec<Subscription<'_>> =
        filters.iter().map(|filter| Subscription { filter, options }).collect();
    let subscriptions = Subscriptions::new(&list);
    let properties: &[Property<'_>] = &[];
    let subscribe = Packet::Subscribe(Subscribe { id: number(1), properties, subscriptions });
    bytes.clear();
    for _ in 0..8 {
        subscribe.encode(&mut bytes).unwrap();
    }
    let taken = turns(&mut net, &bytes);
    assert!(taken >= 8, "{taken} turns for eight packets");

    let taken = turns(&mut net, &[0xc0, 0].repeat(8_000));
    assert!(taken >= 7, "{taken} turns for 8,000 packets");
}
