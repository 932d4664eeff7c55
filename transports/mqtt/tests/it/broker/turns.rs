//! What takes long is done in turns, and nobody waits for another's.

use statestore_mqtt::packet::{Filters, Unsubscribe};

use super::*;

/// A SUBSCRIBE of a thousand filters of as many levels as may be, and its filters.
fn large() -> (BytesMut, Vec<String>) {
    let filters: Vec<String> =
        (0..1_000).map(|at| format!("{}{}", at % 20, "/a".repeat(199))).collect();
    let list: Vec<Subscription<'_>> = filters
        .iter()
        .map(|filter| Subscription { filter, options: SubscriptionOptions::default() })
        .collect();
    let subscriptions = Subscriptions::new(&list);
    let properties: Properties<'_> = &[];
    let mut bytes = BytesMut::new();
    let subscribe = Subscribe { id: number(1), properties, subscriptions };
    Packet::Subscribe(subscribe).encode(&mut bytes).expect("a packet");
    (bytes, filters)
}

/// Reads until it has had all its turns; gives what it was sent, and the number of turns.
fn turns(net: &mut Net, id: ConnectionId) -> (Vec<Seen>, usize) {
    let (mut seen, mut turns) = (net.seen(id), 1);
    while net.broker.rests(id) {
        seen.extend(net.seen(id));
        turns += 1;
    }
    (seen, turns)
}

#[test]
fn filters_that_take_long() {
    let mut net = Net::default();
    let (bytes, filters) = large();
    let [greedy, other] = ["greedy", "other"].map(|name| net.connect(name, HELLO));
    let before = net.broker.stats().bytes;
    net.write(greedy, &[&bytes[..], &[0xc0, 0x00]].concat());
    assert!(net.broker.stats().bytes > before + bytes.len(), "what is left of it is counted");
    let mut count = 0;
    let mut answered = Vec::new();
    while net.broker.rests(greedy) {
        assert!(!net.broker.wants_input(greedy), "what else it sends waits");
        assert_eq!(answered, [], "it is answered when all is done");
        answered = net.seen(greedy);
        net.write(other, &[0xc0, 0x00]);
        assert_eq!(net.seen(other), [Seen::PingResp]);
        count += 1;
        if count == 100 {
            // What is done counts at once.
            let topic = &filters[0];
            net.publish(other, topic, "early", Qos::AtMostOnce, 0);
            assert_eq!(net.payloads(greedy), ["early"]);
        }
    }
    assert_eq!(answered, [Seen::SubAck(vec![0; 1_000]), Seen::PingResp]);
    assert!(count >= 300, "{count} turns for 200,000 levels");
}

#[test]
fn filters_that_take_long_are_answered_once_and_in_order() {
    let mut net = Net::default();
    let (bytes, filters) = large();
    let greedy = net.connect("greedy", HELLO);
    net.seen(greedy);
    let before = net.broker.stats().bytes;
    net.write(greedy, &[&bytes[..], &[0xc0, 0x00]].concat());
    let (seen, count) = turns(&mut net, greedy);
    assert_eq!(seen, [Seen::SubAck(vec![0; 1_000]), Seen::PingResp]);
    assert!(count >= 300, "{count} turns for 200,000 levels");
    let filters: Vec<&str> = filters.iter().map(|filter| &**filter).collect();
    let filters = Filters::new(&filters);
    net.send(greedy, Packet::Unsubscribe(Unsubscribe { id: number(2), properties: &[], filters }));
    let (seen, count) = turns(&mut net, greedy);
    let reasons = [vec![0; 20], vec![0x11; 980]].concat();
    assert_eq!(seen, [Seen::UnsubAck(reasons)]);
    assert!(count >= 300, "{count} turns for 200,000 levels");
    net.seen(greedy);
    assert_eq!(net.broker.stats().bytes, before, "and nothing is left of it");
}

/// Whoever goes in the middle of it leaves nothing behind, and a session that goes on has what was done.
#[test]
fn who_goes_in_the_middle_of_it() {
    for (hello, kept) in [(HELLO, false), (KEPT, true)] {
        let mut net = Net::default();
        let other = net.connect("other", HELLO);
        net.seen(other);
        let before = net.broker.stats().bytes;
        let greedy = net.connect("greedy", hello);
        let (bytes, filters) = large();
        net.write(greedy, &bytes);
        net.seen(greedy);
        assert!(net.broker.rests(greedy));
        net.close(greedy);
        net.publish(other, &filters[0], "x", Qos::AtLeastOnce, 1);
        let expected = if kept { Reason::SUCCESS } else { Reason::NO_MATCHING_SUBSCRIBERS };
        assert_eq!(net.seen(other), [Seen::PubAck(1, expected)]);
        net.pass(seconds(100));
        net.seen(other);
        assert_eq!(net.broker.stats().bytes, before);
    }
}

/// Wills for many that are due together come some at a time.
#[test]
fn wills_that_are_due_together() {
    const WILLS: usize = 40;
    let mut net = Net::default();
    let to: Vec<ConnectionId> = (0..300).map(|at| net.connect(&format!("to{at}"), HELLO)).collect();
    for id in &to {
        net.subscribe(*id, "will", Qos::AtLeastOnce);
    }
    for at in 0..WILLS {
        let delay = [Property::WillDelay(5)];
        let payload = at.to_string();
        let hello = Hello { will: Some(will("will", &payload, &delay)), ..KEPT };
        let id = net.connect(&format!("from{at}"), hello);
        net.close(id);
    }
    net.now += seconds(5);
    let mut heard = Vec::new();
    while heard.len() < WILLS {
        net.broker.handle_timeout(net.now);
        let some = net.payloads(to[0]);
        assert!((1..=10).contains(&some.len()), "{} at a time", some.len());
        heard.extend(some);
        let is_due = net.broker.poll_timeout() == Some(Duration::ZERO);
        assert_eq!(is_due, heard.len() < WILLS);
    }
    assert_eq!(heard, (0..WILLS).map(|at| at.to_string()).collect::<Vec<_>>());
}

/// Sessions that end together, each with many subscriptions, end some at a time.
#[test]
fn sessions_that_end_together() {
    let mut net = Net::default();
    for at in 0..20 {
        let id = net.connect(&format!("{at}"), KEPT);
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
