//! Incidents that the broker reports to its operator: rejections, disconnections and dropped
//! messages.

use statestore_mqtt::Malformed;
use statestore_mqtt::packet::RetainHandling;

use super::*;

type Summary = (IncidentKind, Option<String>, Option<Reason>);

/// Kind, client id and reason of each incident.
fn incidents(net: &mut Net) -> Vec<Summary> {
    let incidents = net.drain_incidents().into_iter();
    incidents.map(|incident| (incident.kind, incident.client_id, incident.reason)).collect()
}

fn summary(kind: IncidentKind, client_id: &str, reason: Reason) -> Summary {
    (kind, Some(client_id.to_owned()), Some(reason))
}

fn anonymous(kind: IncidentKind) -> Summary {
    (kind, None, None)
}

#[test]
fn ordinary_events_are_not_incidents() {
    let mut net = Net::default();
    let a = net.connect("a", ConnectOptions { keep_alive: 10, ..PERSISTENT });
    net.subscribe(a, "t/#", Qos::AtLeastOnce);
    let b = net.connect("b", CLEAN);
    net.publish(b, "t/1", "x", Qos::AtLeastOnce, 1);
    net.publish(b, "unmatched/1", "x", Qos::AtLeastOnce, 2);
    net.close(a);
    net.publish(b, "t/2", "x", Qos::AtMostOnce, 0);
    let a = net.connect("a", PERSISTENT);
    net.disconnect(a, Reason::SUCCESS, &[]);
    net.broker.redirect(net.now, statestore_broker::Redirect::UnknownServer);
    let c = net.try_connect("c", CLEAN);
    assert_eq!(net.receive(c), [Received::ConnAck(false, Reason::USE_ANOTHER_SERVER)]);
    net.advance(seconds(3_600));
    assert_eq!(net.drain_incidents(), []);
}

#[test]
fn first_packet_other_than_connect_is_reported() {
    let mut net = Net::default();
    for bytes in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0x16, 0x03, 0x01, 0x02], &[0xc0, 0x00]] {
        let id = net.accept().unwrap();
        net.write(id, bytes);
        assert!(net.receive(id).is_empty() && net.is_closed(id));
    }
    let [incident] = &net.drain_incidents()[..] else { panic!("not exactly one incident") };
    assert_eq!((incident.kind, incident.count), (IncidentKind::NoConnect, 3));
    assert_eq!(incident.error, Some(Malformed::First(b'G')));
    assert_eq!(
        incident.to_string(),
        "connection closed: the first packet is not an MQTT CONNECT: invalid first byte 0x47"
    );
    net.accept().unwrap();
    net.advance(seconds(10));
    assert_eq!(incident_kinds(&mut net), [IncidentKind::ConnectTimeout]);
}

fn incident_kinds(net: &mut Net) -> Vec<IncidentKind> {
    net.drain_incidents().iter().map(|incident| incident.kind).collect()
}

#[test]
fn rejected_connect_is_reported() {
    let mut net = Net::with_limits(|limits| limits.sessions = 1);
    // A CONNECT of MQTT 3.1.1, and a CONNECT that is too large.
    for (bytes, reason) in [
        (&b"\x10\x0e\0\x04MQTT\x04\x02\0\x3c\0\x02ab"[..], Reason::UNSUPPORTED_PROTOCOL_VERSION),
        (&[0x10, 0xff, 0xff, 0x03], Reason::PACKET_TOO_LARGE),
    ] {
        let id = net.accept().unwrap();
        net.write(id, bytes);
        assert_eq!(incidents(&mut net), [(IncidentKind::Connect, None, Some(reason))]);
        net.close(id);
        net.advance(seconds(10));
    }
    net.connect("a", CLEAN);
    let b = net.try_connect("b", CLEAN);
    assert_eq!(net.receive(b), [Received::ConnAck(false, Reason::QUOTA_EXCEEDED)]);
    assert_eq!(incidents(&mut net), [summary(IncidentKind::Sessions, "b", Reason::QUOTA_EXCEEDED)]);
    let method = [Property::AuthenticationMethod("OTHER")];
    net.try_connect("c", ConnectOptions { properties: &method, ..CLEAN });
    let reason = Reason::BAD_AUTHENTICATION_METHOD;
    assert_eq!(incidents(&mut net), [summary(IncidentKind::Connect, "c", reason)]);
}

#[test]
fn protocol_violation_is_reported() {
    for (bytes, reason) in [
        (&[0x30, 0x03, 0x00, 0x05, b't'][..], Reason::MALFORMED_PACKET),
        (&[0x20, 0x03, 0x00, 0x00, 0x00], Reason::PROTOCOL_ERROR),
        (&[0x30, 0xff, 0xff, 0xff, 0x7f], Reason::PACKET_TOO_LARGE),
        (&[0x30, 0x07, 0x00, 0x01, b't', 0x03, 0x23, 0x00, 0xff], Reason::TOPIC_ALIAS_INVALID),
    ] {
        let mut net = Net::default();
        let a = net.connect("a", CLEAN);
        net.write(a, bytes);
        assert_eq!(net.receive(a), [Received::Disconnect(reason)]);
        assert_eq!(incidents(&mut net), [summary(IncidentKind::ProtocolViolation, "a", reason)]);
    }
    let mut net = Net::with_limits(|limits| limits.receive_maximum = 2);
    let a = net.connect("a", CLEAN);
    (1..=3).for_each(|at| net.publish(a, "t", "x", Qos::ExactlyOnce, at));
    let reason = Reason::RECEIVE_MAXIMUM_EXCEEDED;
    assert_eq!(incidents(&mut net), [summary(IncidentKind::ProtocolViolation, "a", reason)]);
}

#[test]
fn keep_alive_timeout_is_reported() {
    let mut net = Net::default();
    net.connect("a", ConnectOptions { keep_alive: 10, ..CLEAN });
    net.advance(seconds(15));
    assert_eq!(
        incidents(&mut net),
        [summary(IncidentKind::KeepAlive, "a", Reason::KEEP_ALIVE_TIMEOUT)]
    );
}

/// One takeover means a lost connection. Repeated takeovers mean two clients with one client id.
#[test]
fn repeated_takeovers_are_counted_and_marked() {
    let mut net = Net::default();
    for _ in 0..2 {
        net.connect("a", CLEAN);
    }
    let [first] = &net.drain_incidents()[..] else { panic!("not exactly one incident") };
    assert_eq!((first.kind, first.count, first.is_repeated), (IncidentKind::TakenOver, 1, false));
    for _ in 0..5 {
        net.advance(seconds(1));
        net.connect("a", CLEAN);
        assert_eq!(net.drain_incidents(), []);
    }
    net.advance(seconds(5));
    let [again] = &net.drain_incidents()[..] else { panic!("not exactly one incident") };
    assert_eq!((again.kind, again.count, again.is_repeated), (IncidentKind::TakenOver, 5, true));
    assert_eq!(again.reason, Some(Reason::SESSION_TAKEN_OVER));
}

#[test]
fn client_over_a_memory_limit_is_reported() {
    let payload = "x".repeat(1_000);
    for (share, memory, kind) in
        [(50_000, 1 << 20, IncidentKind::Share), (1 << 20, 50_000, IncidentKind::Memory)]
    {
        for is_away in [false, true] {
            let mut net =
                Net::with_limits(|limits| (limits.session_memory, limits.memory) = (share, memory));
            let greedy = net.connect("greedy", PERSISTENT);
            net.subscribe(greedy, "t", Qos::AtLeastOnce);
            if is_away {
                net.close(greedy);
            }
            let from = net.connect("from", CLEAN);
            (1..=60).for_each(|at| {
                net.publish(from, "t", &payload, Qos::AtLeastOnce, at);
                net.receive(from);
            });
            let reason = (!is_away).then_some(Reason::QUOTA_EXCEEDED);
            assert_eq!(incidents(&mut net), [(kind, Some("greedy".to_owned()), reason)]);
        }
    }
    // Without a client id, before the CONNECT is complete.
    let mut net = Net::with_limits(|limits| {
        (limits.memory, limits.connect_bytes) = (20_000, 40_000);
    });
    let id = net.accept().unwrap();
    net.write(id, &[0x10, 0x80, 0xfa, 0x01]);
    net.write(id, &[0; 30_000]);
    assert_eq!(incidents(&mut net), [anonymous(IncidentKind::Memory)]);
}

#[test]
fn refusals_over_a_limit_are_reported() {
    let mut net = Net::with_limits(|limits| {
        limits.subscriptions = 1;
        limits.levels = 3;
        limits.retained_memory = 2_000;
        limits.messages_per_second = Some(3);
    });
    let a = net.connect("a", CLEAN);
    let options =
        SubscriptionOptions { retain_handling: RetainHandling::Never, ..Default::default() };
    for filter in ["t", "u", "a/b/c/d"] {
        net.subscribe_with(a, filter, options, &[]);
    }
    let full = IncidentKind::Subscriptions;
    let invalid = summary(IncidentKind::Subscribe, "a", Reason::TOPIC_FILTER_INVALID);
    assert_eq!(incidents(&mut net), [summary(full, "a", Reason::QUOTA_EXCEEDED), invalid]);
    let large = "x".repeat(3_000);
    let retained = Publish { retain: true, ..publish("t", &large, Qos::AtLeastOnce, 1) };
    net.send(a, Packet::Publish(retained));
    net.publish(a, "a/b/c/d", "x", Qos::AtLeastOnce, 2);
    // The last three messages exceed the rate limit.
    (0..4).for_each(|_| net.publish(a, "rate", "x", Qos::AtMostOnce, 0));
    let all = net.drain_incidents();
    let fields = |incident: &Incident| {
        (incident.kind, incident.topic.clone().expect("a topic"), incident.count)
    };
    assert_eq!(
        all.iter().map(fields).collect::<Vec<_>>(),
        [
            (IncidentKind::Retained, "t".into(), 1),
            (IncidentKind::Publish, "a/b/c/d".into(), 1),
            (IncidentKind::Rate, "rate".into(), 3),
        ]
    );
    let quota = Some(Reason::QUOTA_EXCEEDED);
    assert!(all.iter().all(|incident| incident.client_id.as_deref() == Some("a")), "{all:?}");
    assert_eq!([all[0].reason, all[2].reason], [quota; 2]);
    assert_eq!(net.broker.stats().denied, 0, "limits are not rules");
}

#[test]
fn dropped_and_too_large_messages_are_reported() {
    let mut net = Net::with_limits(|limits| limits.session_memory = 20_000);
    let slow = net.connect("slow", CLEAN);
    net.subscribe(slow, "t", Qos::AtMostOnce);
    let from = net.connect("from", CLEAN);
    let payload = "x".repeat(1_000);
    (0..20).for_each(|_| net.publish(from, "t", &payload, Qos::AtMostOnce, 0));
    let [dropped] = &net.drain_incidents()[..] else { panic!("not exactly one incident") };
    assert_eq!((dropped.kind, dropped.client_id.as_deref()), (IncidentKind::Dropped, Some("slow")));
    assert_eq!(dropped.count, net.broker.stats().dropped);
    assert!(dropped.count > 5);
    let narrow = [Property::MaximumPacketSize(100)];
    let narrow = net.connect("narrow", ConnectOptions { properties: &narrow, ..CLEAN });
    let notification = publish("notification", &payload, Qos::AtLeastOnce, 0);
    net.broker.deliver(net.now, "narrow", &notification);
    net.receive(narrow);
    let [too_large] = &net.drain_incidents()[..] else { panic!("not exactly one incident") };
    assert_eq!(too_large.kind, IncidentKind::TooLarge);
    let names = (too_large.client_id.as_deref(), too_large.topic.as_deref());
    assert_eq!(names, (Some("narrow"), Some("notification")));
}

/// The first incident of a flood is reported at once, and the number of further ones after ten
/// seconds.
#[test]
fn flood_is_reported_once_and_counted() {
    let mut net = Net::with_limits(|limits| limits.messages_per_second = Some(1));
    let a = net.connect("a", CLEAN);
    let flood = |net: &mut Net| {
        (0..1_000).for_each(|_| net.publish(a, "t", "x", Qos::AtMostOnce, 0));
        net.drain_incidents()
            .iter()
            .map(|incident| (incident.count, incident.is_repeated))
            .collect::<Vec<_>>()
    };
    assert_eq!(flood(&mut net), [(999, false)]);
    assert_eq!(net.broker.poll_timeout(), None, "no further incidents");
    for second in 1..10 {
        net.advance(seconds(1));
        assert_eq!(flood(&mut net), [], "{second}");
    }
    assert_eq!(net.broker.poll_timeout(), Some(net.now + seconds(1)));
    net.advance(seconds(1));
    let summaries: Vec<_> = net
        .drain_incidents()
        .iter()
        .map(|incident| (incident.count, incident.is_repeated))
        .collect();
    assert_eq!(summaries, [(9 * 999, true)]);
    assert_eq!(net.broker.poll_timeout(), None);
    // Much later the flood is a new incident.
    net.advance(seconds(60));
    assert_eq!(flood(&mut net), [(999, false)]);
}

/// Many client ids neither hide the number of incidents nor use unlimited memory.
#[test]
fn incidents_of_clients_over_the_limit_are_counted_together() {
    let mut net = Net::with_limits(|limits| limits.levels = 1);
    let fill = |net: &mut Net| {
        for at in 0..1_000 {
            let id = net.connect(&format!("{at}"), CLEAN);
            net.publish(id, "a/b", "x", Qos::AtMostOnce, 0);
            net.close(id);
        }
        net.drain_incidents()
    };
    for _ in 0..2 {
        let all = fill(&mut net);
        assert_eq!(all.len(), 65);
        assert_eq!(all.iter().map(|incident| incident.count).sum::<u64>(), 1_000);
        let others = all.iter().find(|incident| incident.kind == IncidentKind::Others).unwrap();
        assert_eq!((others.count, &others.client_id), (936, &None));
        net.advance(seconds(10));
    }
}

/// Incidents before a CONNECT are grouped by address.
#[test]
fn incidents_without_client_id_are_grouped_by_address() {
    let mut net = Net::default();
    let peers = ["192.0.2.1", "192.0.2.2", "127.0.0.1"].map(|peer| peer.parse().ok());
    for peer in peers.into_iter().chain(peers) {
        let id = net.broker.handle_accept(net.now, peer).unwrap();
        net.write(id, b"GET / HTTP/1.1\r\n\r\n");
        net.close(id);
    }
    let all = net.drain_incidents();
    assert_eq!(all.iter().map(|incident| incident.peer).collect::<Vec<_>>(), peers);
    assert!(all.iter().all(|incident| incident.count == 2), "{all:?}");
}
