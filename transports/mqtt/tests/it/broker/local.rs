//! The host, and clients in the same process.

use std::sync::Arc;

use statestore_mqtt::broker::{Busy, LocalEvent, LocalId, Referral, Rules, Wake};

use super::*;

struct OnlyHost;

impl Rules for OnlyHost {
    fn may_receive(&self, client_id: &str, topic: &str) -> bool {
        topic != "requests" && topic.strip_prefix("own/").is_none_or(|owner| owner == client_id)
    }
}

fn hosted() -> (Net, LocalId) {
    hosted_with(|limits| limits.waiting = 2_000)
}

fn hosted_with(change: impl FnOnce(&mut Limits)) -> (Net, LocalId) {
    let mut config = Config { rules: Arc::new(OnlyHost), ..Config::default() };
    change(&mut config.limits);
    let mut net = Net::new(config);
    let host = net.broker.attach_host(net.now, "$host");
    let options = SubscriptionOptions { qos: Qos::AtLeastOnce, ..SubscriptionOptions::default() };
    let subscription = Subscription { filter: "requests", options };
    assert_eq!(net.broker.subscribe_local(host, &subscription), Reason::GRANTED_QOS_1);
    (net, host)
}

/// Who sent what, and who has gone, as the host hears it.
fn taken(net: &mut Net, host: LocalId) -> Vec<String> {
    let mut taken = Vec::new();
    while let Some(event) = net.broker.poll_local(net.now, host) {
        taken.push(match event {
            LocalEvent::Message(message) => {
                let payload = message.payload();
                let text = std::str::from_utf8(&payload).unwrap();
                format!("{}: {text}", message.sender().unwrap())
            }
            LocalEvent::Gone(client_id) => format!("{client_id} has gone"),
            LocalEvent::Detached(reason) => return vec![reason.to_string()],
        });
    }
    taken
}

#[test]
fn the_host_alone_hears_requests_and_who_has_gone_behind_what_they_sent() {
    let (mut net, host) = hosted();
    let [a, b, spy] = ["a", "b", "spy"].map(|name| net.connect(name, KEPT));
    net.subscribe(spy, "#", Qos::AtLeastOnce);
    for at in 1..=3 {
        net.publish(a, "requests", &at.to_string(), Qos::AtLeastOnce, at);
    }
    net.publish(b, "requests", "1", Qos::AtLeastOnce, 1);
    net.close(a);
    assert_eq!(taken(&mut net, host), ["b: 1", "a: 1", "a: 2", "a: 3", "a has gone"], "by turns");
    assert_eq!(net.heard(spy), []);
    let again = net.connect("b", KEPT);
    assert_eq!(taken(&mut net, host), ["b has gone"], "a takeover is an end too");
    net.publish(again, "requests", "2", Qos::ExactlyOnce, 1);
    assert_eq!(taken(&mut net, host), ["b: 2"]);
}

#[test]
fn what_comes_while_there_is_no_host_waits_for_the_next() {
    let (mut net, host) = hosted();
    let a = net.connect("a", HELLO);
    net.broker.detach(net.now, host);
    let expires = [Property::MessageExpiry(5)];
    let short =
        Publish { properties: &expires[..], ..publish("requests", "short", Qos::AtMostOnce, 0) };
    net.send(a, Packet::Publish(short));
    net.publish(a, "requests", "long", Qos::AtLeastOnce, 1);
    net.close(a);
    net.pass(seconds(10));
    let host = net.broker.attach_host(net.now, "$host");
    assert_eq!(taken(&mut net, host), ["a: long", "a has gone"]);
    let other = net.broker.attach_host(net.now, "$host");
    assert_eq!(taken(&mut net, host), ["session taken over"]);
    assert_eq!(taken(&mut net, other), [""; 0]);
    let refused = net.try_connect("$host", HELLO);
    let told = Seen::ConnAck(false, Reason::CLIENT_IDENTIFIER_NOT_VALID);
    assert_eq!(net.seen(refused), [told]);
}

#[test]
fn who_has_too_much_waiting_is_not_read_from_and_nothing_is_lost() {
    let (mut net, host) = hosted();
    let [greedy, other] = ["greedy", "other"].map(|name| net.connect(name, HELLO));
    for at in 1..=50 {
        net.publish(greedy, "requests", &format!("{at:0>100}"), Qos::AtLeastOnce, at);
    }
    assert!(!net.broker.wants_input(greedy) && net.broker.wants_input(other));
    let acknowledged = net.seen(greedy).len();
    assert!((5..15).contains(&acknowledged), "{acknowledged}");
    net.publish(other, "requests", "mine", Qos::AtLeastOnce, 1);
    while net.broker.poll_wake().is_some() {}
    let mut requests = Vec::new();
    while let Some(LocalEvent::Message(message)) = net.broker.poll_local(net.now, host) {
        requests.push((message.sender().unwrap().to_string(), message.payload()));
        // As a driver does, whenever it is told.
        while let Some(wake) = net.broker.poll_wake() {
            if let Wake::Connection(id) = wake {
                net.seen(id);
            }
        }
    }
    assert_eq!(requests[1], ("other".to_owned(), "mine".into()), "after one of the other's");
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

/// However many have much waiting, and however many have gone since, who asks for one thing waits for one of them.
#[test]
fn who_asks_for_little_waits_for_one_of_those_who_ask_for_much() {
    for have_gone in [false, true] {
        let (mut net, host) = hosted();
        for number in 0..50 {
            let name = format!("greedy {number}");
            let greedy = net.connect(&name, HELLO);
            for at in 1..=3 {
                net.publish(greedy, "requests", &at.to_string(), Qos::AtLeastOnce, at);
            }
            if have_gone {
                net.close(greedy);
            }
        }
        let (quiet, busy) = (net.connect("quiet", HELLO), net.connect("busy", HELLO));
        let next = |net: &mut Net| match net.broker.poll_local(net.now, host) {
            Some(LocalEvent::Message(message)) => message.sender().unwrap().to_string(),
            other => panic!("{other:?}"),
        };
        if !have_gone {
            // Each has had one turn as everybody has who begins.
            (0..50).for_each(|_| assert!(next(&mut net).starts_with("greedy")));
        }
        for round in 0..10 {
            net.publish(quiet, "requests", "mine", Qos::AtMostOnce, 0);
            let two = [next(&mut net), next(&mut net)];
            assert!(two.contains(&"quiet".to_owned()), "{round}: {two:?}");
        }
        for at in 1..=20 {
            net.publish(busy, "requests", "mine", Qos::AtLeastOnce, at);
        }
        let senders: Vec<String> = (0..20).map(|_| next(&mut net)).collect();
        let of_busy = senders.iter().filter(|sender| *sender == "busy").count();
        let its_share = if have_gone { 9..=11 } else { 1..=1 };
        assert!(its_share.contains(&of_busy), "{of_busy} of 20");
    }
}

/// What those have asked for who have gone takes nobody else's place.
#[test]
fn who_has_gone_loses_its_requests_before_others_lose_anything() {
    let (mut net, host) = hosted_with(|limits| (limits.waiting, limits.memory) = (2_000, 100_000));
    let honest = net.connect("honest", HELLO);
    let payload = "x".repeat(1_000);
    for number in 0..200 {
        let ghost = net.connect(&format!("ghost {number}"), HELLO);
        net.publish(ghost, "requests", &payload, Qos::AtMostOnce, 0);
        net.close(ghost);
        assert!(net.broker.stats().bytes <= 100_000);
    }
    net.publish(honest, "requests", "mine", Qos::AtMostOnce, 0);
    assert!(!net.is_closed(honest));
    let taken = taken(&mut net, host);
    assert_eq!(taken[0], "honest: mine");
    let gone = taken.iter().filter(|event| event.ends_with("has gone")).count();
    let asked = taken.iter().filter(|event| event.contains(&payload)).count();
    assert!(
        gone == 200 && (10..150).contains(&asked),
        "{gone} have gone, {asked} requests are left"
    );
    let stats = net.broker.stats();
    assert_eq!((stats.dropped, stats.evicted), (200 - asked as u64, 0));
}

#[test]
fn a_client_in_the_process_is_held_up_as_others_are() {
    let (mut net, host) = hosted();
    let local = net.broker.attach(net.now, "local").unwrap();
    let request = publish("requests", "0123456789", Qos::AtLeastOnce, 0);
    let mut sent = 0;
    while net.broker.publish_local(net.now, local, &request) == Ok(Reason::SUCCESS) {
        sent += 1;
    }
    assert!((5..20).contains(&sent));
    assert_eq!(net.broker.publish_local(net.now, local, &request), Err(Busy));
    while net.broker.poll_wake().is_some() {}
    assert_eq!(taken(&mut net, host).len(), sent);
    assert!(std::iter::from_fn(|| net.broker.poll_wake()).any(|wake| wake == Wake::Local(local)));
    assert_eq!(net.broker.publish_local(net.now, local, &request), Ok(Reason::SUCCESS));
    net.connect("local", HELLO);
    let over = net.broker.poll_local(net.now, local);
    assert!(matches!(over, Some(LocalEvent::Detached(Reason::SESSION_TAKEN_OVER))), "{over:?}");
    net.broker.detach(net.now, local);
    assert_eq!(net.broker.attach(net.now, "$host"), Err(Reason::CLIENT_IDENTIFIER_NOT_VALID));
}

#[test]
fn what_is_delivered_comes_once_in_order_or_ends_the_connection() {
    let (mut net, host) = hosted();
    let narrow = Hello { properties: &[Property::MaximumPacketSize(50)], ..HELLO };
    let a = net.connect("a", narrow);
    net.subscribe(a, "#", Qos::AtMostOnce);
    let note = |payload| publish("notes", payload, Qos::AtLeastOnce, 0);
    let reply = publish("answers", "answer", Qos::AtLeastOnce, 0);
    assert_eq!(net.broker.deliver(net.now, "a", &note("one")), Reason::SUCCESS);
    assert_eq!(net.broker.publish_local(net.now, host, &reply), Ok(Reason::SUCCESS));
    assert_eq!(net.broker.deliver(net.now, "a", &note("two")), Reason::SUCCESS);
    assert_eq!(net.payloads(a), ["one", "answer", "two"]);
    let nobody = Reason::NO_MATCHING_SUBSCRIBERS;
    assert_eq!(net.broker.deliver(net.now, "b", &note("one")), nobody);
    let large = "x".repeat(100);
    assert_eq!(net.broker.deliver(net.now, "a", &note(&large)), Reason::SUCCESS);
    assert_eq!(net.seen(a), [Seen::Disconnect(Reason::PACKET_TOO_LARGE)]);
    assert_eq!(taken(&mut net, host), ["a has gone"]);
    assert_eq!(net.broker.deliver(net.now, "a", &note("late")), nobody);
}

/// Answers are not made for a client that does not read those it has, so it is not disconnected for them either.
#[test]
fn who_does_not_read_its_answers_gets_no_more_of_them() {
    let (mut net, host) = hosted_with(|limits| {
        limits.share = 100_000;
        limits.waiting = 50_000;
    });
    let [slow, other] = ["slow", "other"].map(|name| net.connect(name, HELLO));
    net.subscribe(slow, "answers", Qos::AtLeastOnce);
    for at in 1..=40 {
        net.publish(slow, "requests", &at.to_string(), Qos::AtLeastOnce, at);
    }
    net.publish(other, "requests", "x", Qos::AtLeastOnce, 1);
    let answer = "a".repeat(10_000);
    let mut asked = Vec::new();
    let mut serve = |net: &mut Net| {
        while let Some(LocalEvent::Message(message)) = net.broker.poll_local(net.now, host) {
            let sender = message.sender().unwrap().to_string();
            if sender == "slow" {
                let answer = publish("answers", &answer, Qos::AtLeastOnce, 0);
                assert_eq!(net.broker.publish_local(net.now, host, &answer), Ok(Reason::SUCCESS));
            }
            asked.push(sender);
        }
        asked.len()
    };
    let first = serve(&mut net);
    assert!((3..8).contains(&first), "{first}");
    let (mut turns, mut answers) = (0, 0);
    while answers < 40 {
        while net.broker.poll_wake().is_some() {}
        let heard = net.heard(slow);
        answers += heard.len();
        heard.iter().for_each(|message| net.ack(slow, message.id));
        let told =
            std::iter::from_fn(|| net.broker.poll_wake()).any(|wake| wake == Wake::Local(host));
        assert!(told || answers == 40, "the host can go on");
        serve(&mut net);
        turns += 1;
    }
    assert!(turns > 5, "{turns}");
    assert_eq!(asked.iter().filter(|sender| *sender == "other").count(), 1);
    assert_eq!(net.broker.stats().evicted, 0);
}

/// Its acknowledgements are behind its requests, and these are not read while so many wait for the host.
#[test]
fn who_has_read_its_answers_and_cannot_say_so_goes_on() {
    let (mut net, host) = hosted_with(|limits| {
        limits.share = 100_000;
        limits.waiting = 10_000;
    });
    let a = net.connect("a", HELLO);
    let note = "n".repeat(10_000);
    for _ in 0..4 {
        let note = publish("notes", &note, Qos::AtLeastOnce, 0);
        assert_eq!(net.broker.deliver(net.now, "a", &note), Reason::SUCCESS);
    }
    let heard = net.heard(a);
    for at in 1..=30 {
        net.publish(a, "requests", &format!("{at:0>1000}"), Qos::AtLeastOnce, at);
    }
    heard.iter().for_each(|message| net.ack(a, message.id));
    assert!(heard.len() == 4 && !net.broker.wants_input(a));
    let mut served = 0;
    loop {
        let taken = taken(&mut net, host).len();
        served += taken;
        net.seen(a);
        if taken == 0 {
            break;
        }
    }
    assert_eq!(served, 30);
}

/// Who may not hear a message takes it from nobody by sharing.
#[test]
fn nobody_shares_what_is_for_another() {
    let (mut net, _) = hosted();
    let [owner, thief, from] = ["owner", "thief", "from"].map(|name| net.connect(name, HELLO));
    net.subscribe(thief, "$share/g/own/+", Qos::AtLeastOnce);
    net.subscribe(owner, "$share/g/own/+", Qos::AtLeastOnce);
    for at in 1..=10 {
        net.publish(from, "own/owner", "x", Qos::AtLeastOnce, at);
    }
    assert_eq!((net.heard(owner).len(), net.heard(thief).len()), (10, 0));
}

/// What it subscribes to is nothing that it could read.
#[test]
fn who_subscribes_to_much_gets_its_answers() {
    let (mut net, host) = hosted_with(|limits| limits.share = 100_000);
    let a = net.connect("a", HELLO);
    for at in 0..20 {
        net.subscribe(a, &format!("a/b/c/d/{at}"), Qos::AtLeastOnce);
    }
    assert!(net.broker.stats().bytes > 30_000, "{:?}", net.broker.stats());
    net.publish(a, "requests", "x", Qos::AtLeastOnce, 1);
    assert_eq!(taken(&mut net, host), ["a: x"]);
}

/// There are more notices than are kept, so this one is lost; what was asked before it is not.
#[test]
fn requests_of_one_that_has_gone_unheard_are_heard() {
    let (mut net, host) = hosted_with(|limits| limits.share = 100_000);
    let slow = net.connect("slow", HELLO);
    net.subscribe(slow, "answers", Qos::AtLeastOnce);
    let answer = "a".repeat(50_000);
    let answer = publish("answers", &answer, Qos::AtLeastOnce, 0);
    assert_eq!(net.broker.publish_local(net.now, host, &answer), Ok(Reason::SUCCESS));
    net.publish(slow, "requests", "x", Qos::AtLeastOnce, 1);
    assert_eq!(taken(&mut net, host), [""; 0]);
    for at in 0..10_000 {
        let other = net.connect(&format!("other{at}"), HELLO);
        net.close(other);
    }
    net.close(slow);
    let taken = taken(&mut net, host);
    assert_eq!(taken.len(), 10_001);
    assert!(taken.contains(&"slow: x".to_owned()));
}

/// Comings and goings of one client are one notice while nobody takes it.
#[test]
fn who_goes_again_and_again_has_gone_once() {
    let (mut net, host) = hosted();
    net.broker.detach(net.now, host);
    let before = net.broker.stats().bytes;
    for _ in 0..1_000 {
        let a = net.connect("a", HELLO);
        net.close(a);
    }
    assert!(net.broker.stats().bytes - before < 1_000, "{:?}", net.broker.stats());
    let host = net.broker.attach_host(net.now, "$host");
    assert_eq!(taken(&mut net, host), ["a has gone"]);
}

/// Server Reference: 3.2.2.3.16, 3.14.2.2.5, 4.11.
#[test]
fn clients_are_sent_to_another_server() {
    let (mut net, host) = hosted();
    let narrow = Hello { properties: &[Property::MaximumPacketSize(18)], ..KEPT };
    let [a, b] = [("a", KEPT), ("b", narrow)].map(|(name, hello)| net.connect(name, hello));
    let new = net.accept().unwrap();
    net.broker.refer(net.now, Referral::Server("10.0.0.2:1883"));
    let mut out = BytesMut::new();
    let _ = net.broker.poll_output(net.now, a, &mut out);
    let Ok(Packet::Disconnect(told)) = Packet::decode(&out) else { panic!("{out:?}") };
    assert_eq!(told.reason, Reason::USE_ANOTHER_SERVER);
    assert!(told.properties.iter().eq([Property::ServerReference("10.0.0.2:1883")]));
    let without = [Seen::Disconnect(Reason::USE_ANOTHER_SERVER)];
    assert_eq!(net.seen(b), without, "it takes no packet of so many bytes");
    assert!(net.is_closed(b) && net.seen(new).is_empty() && !net.is_closed(new));
    net.close(a);
    net.close(b);
    assert_eq!(taken(&mut net, host), ["a has gone", "b has gone"]);
    let again = net.try_connect("a", KEPT);
    out.clear();
    assert_eq!(net.broker.poll_output(net.now, again, &mut out), Output::Close);
    let Ok(Packet::ConnAck(told)) = Packet::decode(&out) else { panic!("{out:?}") };
    assert_eq!(told.reason, Reason::USE_ANOTHER_SERVER);
    assert!(told.properties.iter().eq([Property::ServerReference("10.0.0.2:1883")]));
    net.broker.refer(net.now, Referral::Elsewhere);
    let nowhere = net.try_connect("a", KEPT);
    out.clear();
    assert_eq!(net.broker.poll_output(net.now, nowhere, &mut out), Output::Close);
    let Ok(Packet::ConnAck(told)) = Packet::decode(&out) else { panic!("{out:?}") };
    assert_eq!((told.reason, told.properties.iter().count()), (Reason::USE_ANOTHER_SERVER, 0));
    net.broker.refer(net.now, Referral::Here);
    let back = net.try_connect("a", KEPT);
    assert_eq!(net.seen(back), [Seen::ConnAck(true, Reason::SUCCESS)], "its session is there");
}

/// Whoever is thrown out as soon as it comes is told so.
#[test]
fn a_client_that_has_no_room_hears_of_it() {
    let mut net = Net::limited(|limits| limits.memory = 3_000);
    let other = net.connect("c", HELLO);
    net.seen(other);
    let id = net.broker.attach(net.now, "a").expect("it may come");
    assert!(net.broker.stats().bytes <= 3_000, "{:?}", net.broker.stats());
    assert!(!net.broker.is_attached(id) && !net.broker.is_connected("a"));
    let told = net.broker.poll_local(net.now, id);
    assert!(matches!(told, Some(LocalEvent::Detached(Reason::QUOTA_EXCEEDED))), "{told:?}");
    assert_eq!((net.broker.stats().evicted, net.broker.stats().sessions), (1, 1));
    net.broker.detach(net.now, id);
    net.write(other, &[0xc0, 0x00]);
    assert_eq!(net.seen(other), [Seen::PingResp]);
}

/// The host takes the client id of another: what that one left comes to an end at once.
#[test]
fn a_host_comes_in_the_place_of_a_client() {
    let mut net = Net::default();
    let heir = net.connect("heir", HELLO);
    net.subscribe(heir, "will", Qos::AtMostOnce);
    let hello = Hello { will: Some(will("will", "gone", &[])), ..HELLO };
    let before = net.connect("host", hello);
    let host = net.broker.attach_host(net.now, "host");
    assert_eq!(net.broker.poll_timeout(), None, "nothing is left to be done");
    assert_eq!(net.seen(before), [Seen::Disconnect(Reason::SESSION_TAKEN_OVER)]);
    assert_eq!(net.payloads(heir), ["gone"]);
    assert!(net.broker.is_attached(host));
}
