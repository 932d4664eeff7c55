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

/// Who has just come, or was last given more than a turn takes, waits for its turn with whatever it sends.
#[test]
fn who_comes_and_who_takes_long_goes_behind_others() {
    let second = Duration::from_secs(1);
    let mut net = Net::with_probation(Config::default(), second);
    let other = net.connect("other", HELLO);
    net.subscribe(other, "t", Qos::AtMostOnce);
    net.pass(second);
    let new = net.connect("new", HELLO);
    let heard = |net: &mut Net, id: ConnectionId| {
        net.publish(id, "t", "x", Qos::AtMostOnce, 0);
        (net.broker.rests(id), net.payloads(other).len())
    };
    assert_eq!(heard(&mut net, new), (true, 0));
    assert!(!net.broker.wants_input(new));
    net.seen(new);
    assert_eq!((net.broker.rests(new), net.payloads(other).len()), (false, 1));
    net.pass(second);
    assert_eq!(heard(&mut net, new), (false, 1));
    let (bytes, _) = large();
    net.write(new, &bytes);
    while net.broker.rests(new) {
        net.seen(new);
    }
    assert_eq!(heard(&mut net, new), (true, 0), "it took long");
    net.seen(new);
    net.pass(second);
    assert_eq!(heard(&mut net, new), (false, 2));
}

/// More than a CONNECT in one piece waits as well, and a CONNECT does not.
#[test]
fn who_does_not_wait_for_its_welcome_goes_behind_others() {
    let mut net = Net::with_probation(Config::default(), Duration::from_secs(1));
    let id = net.try_connect("a", HELLO);
    assert!(!net.broker.rests(id));
    let id = net.accept().unwrap();
    let connect = Connect {
        clean_start: true,
        keep_alive: 0,
        properties: HELLO.properties,
        client_id: "b",
        will: None,
        user_name: None,
        password: None,
    };
    let mut bytes = BytesMut::new();
    Packet::Connect(connect).encode(&mut bytes).expect("a packet");
    bytes.extend_from_slice(&[0xc0, 0x00]);
    net.write(id, &bytes);
    assert!(net.broker.rests(id));
    assert_eq!(net.seen(id), [Seen::ConnAck(false, Reason::SUCCESS), Seen::PingResp]);
}

/// The end of one that has just come waits for its turn where it means much.
#[test]
fn an_end_that_means_much_waits_too() {
    let second = Duration::from_secs(1);
    let mut net = Net::with_probation(Config::default(), second);
    let plain = net.connect("plain", HELLO);
    let with_will = net.connect("will", Hello { will: Some(will("will", "gone", &[])), ..HELLO });
    let ends = |net: &Net, id| net.broker.rests_before_end(net.now, id);
    assert_eq!((ends(&net, plain), ends(&net, with_will)), (false, true));
    for at in 0..20 {
        net.subscribe(plain, &at.to_string(), Qos::AtMostOnce);
    }
    assert!(ends(&net, plain));
    net.pass(second);
    assert_eq!((ends(&net, plain), ends(&net, with_will)), (false, false));
}
