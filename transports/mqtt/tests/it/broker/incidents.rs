//! What whoever runs a broker is told: who was refused, disconnected or left without something, and nothing else.

use statestore_mqtt::Malformed;
use statestore_mqtt::packet::RetainHandling;

use super::*;

type Told = (IncidentKind, Option<String>, Option<Reason>);

/// What there is to be told of which client.
fn told(net: &mut Net) -> Vec<Told> {
    net.told().into_iter().map(|told| (told.kind, told.client_id, told.reason)).collect()
}

fn of(kind: IncidentKind, client_id: &str, reason: Reason) -> Told {
    (kind, Some(client_id.to_owned()), Some(reason))
}

fn silent(kind: IncidentKind) -> Told {
    (kind, None, None)
}

/// A plant on an ordinary day.
#[test]
fn what_belongs_to_the_course_of_things_is_not_told() {
    let mut net = Net::default();
    let a = net.connect("a", Hello { keep_alive: 10, ..KEPT });
    net.subscribe(a, "t/#", Qos::AtLeastOnce);
    let b = net.connect("b", HELLO);
    net.publish(b, "t/1", "x", Qos::AtLeastOnce, 1);
    net.publish(b, "nobody/1", "x", Qos::AtLeastOnce, 2);
    net.close(a);
    net.publish(b, "t/2", "x", Qos::AtMostOnce, 0);
    let a = net.connect("a", KEPT);
    net.disconnect(a, Reason::SUCCESS, &[]);
    net.broker.refer(net.now, statestore_mqtt::broker::Referral::Elsewhere);
    let c = net.try_connect("c", HELLO);
    assert_eq!(net.seen(c), [Seen::ConnAck(false, Reason::USE_ANOTHER_SERVER)]);
    net.pass(seconds(3_600));
    assert_eq!(net.told(), []);
}

#[test]
fn what_came_first_was_no_connect() {
    let mut net = Net::default();
    for bytes in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0x16, 0x03, 0x01, 0x02], &[0xc0, 0x00]] {
        let id = net.accept().unwrap();
        net.write(id, bytes);
        assert!(net.seen(id).is_empty() && net.is_closed(id));
    }
    let [told] = &net.told()[..] else { panic!("one peer, one kind") };
    assert_eq!((told.kind, told.times), (IncidentKind::NoConnect, 3));
    assert_eq!(told.error, Some(Malformed::First(b'G')));
    assert_eq!(
        told.to_string(),
        "a connection was closed that began with no CONNECT of MQTT: no packet begins with 0x47"
    );
    net.accept().unwrap();
    net.pass(seconds(10));
    assert_eq!(told_kinds(&mut net), [IncidentKind::Silent]);
}

fn told_kinds(net: &mut Net) -> Vec<IncidentKind> {
    net.told().iter().map(|told| told.kind).collect()
}

#[test]
fn a_connect_that_is_refused() {
    let mut net = Net::limited(|limits| limits.sessions = 1);
    // Of MQTT 3.1.1, and too long.
    for (bytes, reason) in [
        (&b"\x10\x0e\0\x04MQTT\x04\x02\0\x3c\0\x02ab"[..], Reason::UNSUPPORTED_PROTOCOL_VERSION),
        (&[0x10, 0xff, 0xff, 0x03], Reason::PACKET_TOO_LARGE),
    ] {
        let id = net.accept().unwrap();
        net.write(id, bytes);
        assert_eq!(told(&mut net), [(IncidentKind::Connect, None, Some(reason))]);
        net.close(id);
        net.pass(seconds(10));
    }
    net.connect("a", HELLO);
    let b = net.try_connect("b", HELLO);
    assert_eq!(net.seen(b), [Seen::ConnAck(false, Reason::QUOTA_EXCEEDED)]);
    assert_eq!(told(&mut net), [of(IncidentKind::Sessions, "b", Reason::QUOTA_EXCEEDED)]);
    let method = [Property::AuthenticationMethod("OTHER")];
    net.try_connect("c", Hello { properties: &method, ..HELLO });
    let reason = Reason::BAD_AUTHENTICATION_METHOD;
    assert_eq!(told(&mut net), [of(IncidentKind::Connect, "c", reason)]);
}

#[test]
fn whoever_breaks_the_rules_of_mqtt() {
    for (bytes, reason) in [
        (&[0x30, 0x03, 0x00, 0x05, b't'][..], Reason::MALFORMED_PACKET),
        (&[0x20, 0x03, 0x00, 0x00, 0x00], Reason::PROTOCOL_ERROR),
        (&[0x30, 0xff, 0xff, 0xff, 0x7f], Reason::PACKET_TOO_LARGE),
        (&[0x30, 0x07, 0x00, 0x01, b't', 0x03, 0x23, 0x00, 0xff], Reason::TOPIC_ALIAS_INVALID),
    ] {
        let mut net = Net::default();
        let a = net.connect("a", HELLO);
        net.write(a, bytes);
        assert_eq!(net.seen(a), [Seen::Disconnect(reason)]);
        assert_eq!(told(&mut net), [of(IncidentKind::Offence, "a", reason)]);
    }
    let mut net = Net::limited(|limits| limits.receive_maximum = 2);
    let a = net.connect("a", HELLO);
    (1..=3).for_each(|at| net.publish(a, "t", "x", Qos::ExactlyOnce, at));
    let reason = Reason::RECEIVE_MAXIMUM_EXCEEDED;
    assert_eq!(told(&mut net), [of(IncidentKind::Offence, "a", reason)]);
}

#[test]
fn who_falls_silent() {
    let mut net = Net::default();
    net.connect("a", Hello { keep_alive: 10, ..HELLO });
    net.pass(seconds(15));
    assert_eq!(told(&mut net), [of(IncidentKind::KeepAlive, "a", Reason::KEEP_ALIVE_TIMEOUT)]);
}

/// Once is a client whose connection was lost; over and over they are two.
#[test]
fn two_with_one_client_id() {
    let mut net = Net::default();
    for _ in 0..2 {
        net.connect("a", HELLO);
    }
    let [once] = &net.told()[..] else { panic!("one") };
    assert_eq!((once.kind, once.times, once.again), (IncidentKind::TakenOver, 1, false));
    for _ in 0..5 {
        net.pass(seconds(1));
        net.connect("a", HELLO);
        assert_eq!(net.told(), []);
    }
    net.pass(seconds(5));
    let [again] = &net.told()[..] else { panic!("one") };
    assert_eq!((again.kind, again.times, again.again), (IncidentKind::TakenOver, 5, true));
    assert_eq!(again.reason, Some(Reason::SESSION_TAKEN_OVER));
}

#[test]
fn who_holds_too_much() {
    let payload = "x".repeat(1_000);
    for (share, memory, kind) in
        [(50_000, 1 << 20, IncidentKind::Share), (1 << 20, 50_000, IncidentKind::Memory)]
    {
        for is_away in [false, true] {
            let mut net = Net::limited(|limits| (limits.share, limits.memory) = (share, memory));
            let greedy = net.connect("greedy", KEPT);
            net.subscribe(greedy, "t", Qos::AtLeastOnce);
            if is_away {
                net.close(greedy);
            }
            let from = net.connect("from", HELLO);
            (1..=60).for_each(|at| {
                net.publish(from, "t", &payload, Qos::AtLeastOnce, at);
                net.seen(from);
            });
            let reason = (!is_away).then_some(Reason::QUOTA_EXCEEDED);
            assert_eq!(told(&mut net), [(kind, Some("greedy".to_owned()), reason)]);
        }
    }
    // Before it has a name.
    let mut net = Net::limited(|limits| {
        (limits.memory, limits.connect_bytes) = (20_000, 40_000);
    });
    let id = net.accept().unwrap();
    net.write(id, &[0x10, 0x80, 0xfa, 0x01]);
    net.write(id, &[0; 30_000]);
    assert_eq!(told(&mut net), [silent(IncidentKind::Memory)]);
}

#[test]
fn what_is_beyond_a_limit_is_refused() {
    let mut net = Net::limited(|limits| {
        limits.subscriptions = 1;
        limits.levels = 3;
        limits.retained = 2_000;
        limits.messages_per_second = Some(3);
    });
    let a = net.connect("a", HELLO);
    let options =
        SubscriptionOptions { retain_handling: RetainHandling::Never, ..Default::default() };
    for filter in ["t", "u", "a/b/c/d"] {
        net.subscribe_with(a, filter, options, &[]);
    }
    let full = IncidentKind::Subscriptions;
    let invalid = of(IncidentKind::Subscribe, "a", Reason::TOPIC_FILTER_INVALID);
    assert_eq!(told(&mut net), [of(full, "a", Reason::QUOTA_EXCEEDED), invalid]);
    let large = "x".repeat(3_000);
    let retained = Publish { retain: true, ..publish("t", &large, Qos::AtLeastOnce, 1) };
    net.send(a, Packet::Publish(retained));
    net.publish(a, "a/b/c/d", "x", Qos::AtLeastOnce, 2);
    // The last three are beyond the rate.
    (0..4).for_each(|_| net.publish(a, "rate", "x", Qos::AtMostOnce, 0));
    let all = net.told();
    let names = |told: &Incident| (told.kind, told.topic.clone().expect("a topic"), told.times);
    assert_eq!(
        all.iter().map(names).collect::<Vec<_>>(),
        [
            (IncidentKind::Retained, "t".into(), 1),
            (IncidentKind::Publish, "a/b/c/d".into(), 1),
            (IncidentKind::Rate, "rate".into(), 3),
        ]
    );
    let quota = Some(Reason::QUOTA_EXCEEDED);
    assert!(all.iter().all(|told| told.client_id.as_deref() == Some("a")), "{all:?}");
    assert_eq!([all[0].reason, all[2].reason], [quota; 2]);
    assert_eq!(net.broker.stats().denied, 0, "by no rule");
}

#[test]
fn what_is_dropped_or_cannot_be_told() {
    let mut net = Net::limited(|limits| limits.share = 20_000);
    let slow = net.connect("slow", HELLO);
    net.subscribe(slow, "t", Qos::AtMostOnce);
    let from = net.connect("from", HELLO);
    let payload = "x".repeat(1_000);
    (0..20).for_each(|_| net.publish(from, "t", &payload, Qos::AtMostOnce, 0));
    let [dropped] = &net.told()[..] else { panic!("one") };
    assert_eq!((dropped.kind, dropped.client_id.as_deref()), (IncidentKind::Dropped, Some("slow")));
    assert_eq!(dropped.times, net.broker.stats().dropped);
    assert!(dropped.times > 5);
    let narrow = [Property::MaximumPacketSize(100)];
    let narrow = net.connect("narrow", Hello { properties: &narrow, ..HELLO });
    let note = publish("note", &payload, Qos::AtLeastOnce, 0);
    net.broker.deliver(net.now, "narrow", &note);
    net.seen(narrow);
    assert_eq!(told(&mut net), [of(IncidentKind::Missed, "narrow", Reason::PACKET_TOO_LARGE)]);
}

/// However much happens it is told once, and ten seconds later how much more it was.
#[test]
fn a_flood_is_told_once_and_counted() {
    let mut net = Net::limited(|limits| limits.messages_per_second = Some(1));
    let a = net.connect("a", HELLO);
    let flood = |net: &mut Net| {
        (0..1_000).for_each(|_| net.publish(a, "t", "x", Qos::AtMostOnce, 0));
        net.told().iter().map(|told| (told.times, told.again)).collect::<Vec<_>>()
    };
    assert_eq!(flood(&mut net), [(999, false)]);
    assert_eq!(net.broker.poll_timeout(), None, "nothing more has happened");
    for second in 1..10 {
        net.pass(seconds(1));
        assert_eq!(flood(&mut net), [], "{second}");
    }
    assert_eq!(net.broker.poll_timeout(), Some(net.now + seconds(1)));
    net.pass(seconds(1));
    let told: Vec<_> = net.told().iter().map(|told| (told.times, told.again)).collect();
    assert_eq!(told, [(9 * 999, true)]);
    assert_eq!(net.broker.poll_timeout(), None);
    // Much later it is news.
    net.pass(seconds(60));
    assert_eq!(flood(&mut net), [(999, false)]);
}

/// Nobody who has many names hides that there are others, nor takes memory; nobody has to ask.
#[test]
fn more_clients_than_are_told_apart_are_counted_together() {
    let mut net = Net::limited(|limits| limits.levels = 1);
    let fill = |net: &mut Net| {
        for at in 0..1_000 {
            let id = net.connect(&format!("{at}"), HELLO);
            net.publish(id, "a/b", "x", Qos::AtMostOnce, 0);
            net.close(id);
        }
        net.told()
    };
    for _ in 0..2 {
        let all = fill(&mut net);
        assert_eq!(all.len(), 65);
        assert_eq!(all.iter().map(|told| told.times).sum::<u64>(), 1_000);
        let others = all.iter().find(|told| told.kind == IncidentKind::Others).unwrap();
        assert_eq!((others.times, &others.client_id), (936, &None));
        net.pass(seconds(10));
    }
}

/// Those without a name are told apart by where they are.
#[test]
fn strangers_are_told_apart_by_their_addresses() {
    let mut net = Net::default();
    let peers = ["192.0.2.1", "192.0.2.2", "127.0.0.1"].map(|peer| peer.parse().ok());
    for peer in peers.into_iter().chain(peers) {
        let id = net.broker.handle_accept(net.now, peer).unwrap();
        net.write(id, b"GET / HTTP/1.1\r\n\r\n");
        net.close(id);
    }
    let all = net.told();
    assert_eq!(all.iter().map(|told| told.peer).collect::<Vec<_>>(), peers);
    assert!(all.iter().all(|told| told.times == 2), "{all:?}");
}
