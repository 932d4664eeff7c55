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
        unhurt(&mut net, honest);
    }
    let ended = slow.iter().filter(|id| net.broker.is_closing(**id)).count();
    assert!((100..300).contains(&ended), "{ended}");
    let (last, id) = (slow.len() - 1, slow[slow.len() - 1]);
    assert!(last > 0 && (net.broker.is_closing(id) || net.broker.wants_input(id)));
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
