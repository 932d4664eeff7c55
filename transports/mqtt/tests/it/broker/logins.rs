//! Who is who, which somebody else finds out, and what each may do.

use std::sync::Arc;

use statestore_mqtt::broker::{Admission, Event, Rules};

use super::*;

/// May do everything with topics that begin with its letter.
struct Own(char);

impl Rules for Own {
    fn may_connect(&self, client_id: &str) -> Result<(), Reason> {
        if client_id.starts_with(self.0) { Ok(()) } else { Err(Reason::NOT_AUTHORIZED) }
    }

    fn may_publish(&self, _: &str, topic: &str, _: Option<&str>) -> Result<(), Reason> {
        self.may_connect(topic)
    }

    fn may_subscribe(&self, _: &str, filter: &str) -> Result<(), Reason> {
        if filter == "#" { Ok(()) } else { self.may_connect(filter) }
    }

    fn may_receive(&self, _: &str, topic: &str) -> bool {
        topic.starts_with(self.0)
    }
}

fn asking() -> Net {
    Net::new(Config { asks_who: true, ..Config::default() })
}

fn of(user: &str) -> Result<Admission, Reason> {
    let rules = Own(user.chars().next().expect("a name"));
    Ok(Admission { user: Some(user.into()), rules: Some(Arc::new(rules)), ..Admission::default() })
}

/// The question that there is, and its connection.
fn asked(net: &mut Net) -> (ConnectionId, String) {
    let Some(Event::Login { connection, client_id, .. }) = net.broker.poll_event() else {
        panic!("a question")
    };
    (connection, client_id)
}

fn log_in(net: &mut Net, client_id: &str, hello: Hello<'_>, user: &str) -> Vec<Seen> {
    let id = net.try_connect(client_id, hello);
    assert_eq!(asked(net), (id, client_id.to_owned()));
    net.broker.handle_login(net.now, id, of(user));
    net.seen(id)
}

#[test]
fn nothing_happens_until_the_answer_is_there() {
    let mut net = asking();
    let a = net.try_connect("a", HELLO);
    net.publish(a, "a/1", "early", Qos::AtLeastOnce, 1);
    assert_eq!((net.seen(a), net.broker.is_connected("a")), (vec![], false));
    assert_eq!(asked(&mut net).0, a);
    assert_eq!(net.broker.poll_event(), None);
    net.broker.handle_login(net.now, a, of("a"));
    let expected =
        [Seen::ConnAck(false, Reason::SUCCESS), Seen::PubAck(1, Reason::NO_MATCHING_SUBSCRIBERS)];
    assert_eq!(net.seen(a), expected);
    assert!(!net.broker.handle_login(net.now, a, Err(Reason::BANNED)));
    assert!(net.broker.is_connected("a"), "there is one answer");
}

#[test]
fn who_is_refused_is_told_why() {
    let mut net = asking();
    let a = net.try_connect("a", HELLO);
    net.broker.handle_login(net.now, a, Err(Reason::BAD_USER_NAME_OR_PASSWORD));
    let told = [Seen::ConnAck(false, Reason::BAD_USER_NAME_OR_PASSWORD)];
    assert_eq!((net.seen(a), net.is_closed(a)), (told.to_vec(), true));
    let other = net.try_connect("x", HELLO);
    assert!(!net.broker.handle_login(net.now, other, of("a")));
    assert_eq!(net.seen(other), [Seen::ConnAck(false, Reason::NOT_AUTHORIZED)], "by its rules");
    assert_eq!(net.broker.stats().sessions, 0);
}

#[test]
fn an_answer_that_is_late_changes_nothing() {
    let mut net = asking();
    let a = net.try_connect("a", HELLO);
    net.close(a);
    assert!(!net.broker.handle_login(net.now, a, of("a")));
    let silent = net.try_connect("a", HELLO);
    net.pass(seconds(3_600));
    assert_eq!((net.seen(silent), net.is_closed(silent)), (vec![], true));
    net.broker.handle_login(net.now, silent, of("a"));
    net.close(silent);
    let stats = net.broker.stats();
    assert_eq!((stats.connections, stats.sessions, stats.bytes), (0, 0, 0));
}

#[test]
fn who_has_no_name_is_asked_about_under_its_new_one() {
    let mut net = asking();
    let id = net.try_connect("", HELLO);
    let (_, client_id) = asked(&mut net);
    assert!(client_id.starts_with("assigned-"));
    net.broker.handle_login(net.now, id, of("assigned"));
    assert_eq!(net.seen(id), [Seen::ConnAck(false, Reason::SUCCESS)]);
    assert!(net.broker.is_connected(&client_id));
}

#[test]
fn nobody_takes_over_the_session_of_another_user() {
    let mut net = asking();
    let taken = [Seen::ConnAck(false, Reason::CLIENT_IDENTIFIER_NOT_VALID)];
    assert_eq!(log_in(&mut net, "a1", KEPT, "ann"), [Seen::ConnAck(false, Reason::SUCCESS)]);
    assert_eq!(log_in(&mut net, "a1", HELLO, "abe"), taken);
    assert!(net.broker.is_connected("a1"));
    assert_eq!(log_in(&mut net, "a1", KEPT, "ann"), [Seen::ConnAck(true, Reason::SUCCESS)]);
    net.broker.disconnect(net.now, "a1", Reason::ADMINISTRATIVE_ACTION);
    assert_eq!(log_in(&mut net, "a1", HELLO, "abe"), taken, "its client is away, and comes back");
    net.pass(seconds(61));
    assert_eq!(log_in(&mut net, "a1", HELLO, "abe"), [Seen::ConnAck(false, Reason::SUCCESS)]);
    let local = net.broker.attach(net.now, "a2").unwrap();
    assert_eq!(log_in(&mut net, "a2", HELLO, "ann"), taken, "it is of this process");
    assert!(net.broker.is_attached(local));
}

/// What somebody has asked is not taken for what the next one asks who has the client id.
#[test]
fn a_client_id_is_free_when_the_host_has_heard_all_that_came_from_it() {
    let mut net = asking();
    let host = net.broker.attach_host(net.now, "$host");
    let subscription = Subscription { filter: "a/ask", options: SubscriptionOptions::default() };
    net.broker.subscribe_local(host, &subscription);
    let ann = net.try_connect("a", HELLO);
    assert_eq!(asked(&mut net).0, ann);
    net.broker.handle_login(net.now, ann, of("ann"));
    net.publish(ann, "a/ask", "x", Qos::AtLeastOnce, 1);
    net.close(ann);
    let busy = [Seen::ConnAck(false, Reason::SERVER_BUSY)];
    assert_eq!(log_in(&mut net, "a", HELLO, "abe"), busy);
    while net.broker.poll_local(net.now, host).is_some() {}
    assert_eq!(log_in(&mut net, "a", HELLO, "abe"), [Seen::ConnAck(false, Reason::SUCCESS)]);
}

/// Rules that hold for some.
struct Until(Arc<std::sync::atomic::AtomicBool>);

impl Rules for Until {
    fn still_hold(&self, _: &str) -> bool {
        !self.0.load(std::sync::atomic::Ordering::Relaxed)
    }
}

#[test]
fn whose_rules_hold_no_more_is_sent_away_connected_or_not() {
    let mut net = asking();
    let over = Arc::default();
    for (name, rules) in [("away", true), ("gone", true), ("stays", false)] {
        let id = net.try_connect(name, KEPT);
        let rules: Option<Arc<dyn Rules>> = match rules {
            true => Some(Arc::new(Until(Arc::clone(&over)))),
            false => None,
        };
        assert!(net.broker.handle_login(
            net.now,
            id,
            Ok(Admission { rules, ..Admission::default() })
        ));
        net.seen(id);
        if name == "away" {
            net.close(id);
        }
    }
    assert_eq!((net.broker.recheck(net.now), net.broker.stats().sessions), (0, 3));
    over.store(true, std::sync::atomic::Ordering::Relaxed);
    assert_eq!((net.broker.recheck(net.now), net.broker.stats().sessions), (2, 1));
    assert!(net.broker.is_connected("stays") && !net.broker.is_connected("gone"));
}

/// What it has subscribed to by rules that are no more is forgotten, also if nobody has looked at it meanwhile.
#[test]
fn a_session_of_rules_that_hold_no_more_is_not_resumed() {
    for is_over in [false, true] {
        let mut net = asking();
        let over: Arc<std::sync::atomic::AtomicBool> = Arc::default();
        let rules = || Some(Arc::new(Until(Arc::clone(&over))) as Arc<dyn Rules>);
        for expected in [false, !is_over] {
            let id = net.try_connect("a", KEPT);
            let admission = Admission { rules: rules(), ..Admission::default() };
            net.broker.handle_login(net.now, id, Ok(admission));
            assert_eq!(net.seen(id), [Seen::ConnAck(expected, Reason::SUCCESS)]);
            net.close(id);
            over.store(is_over, std::sync::atomic::Ordering::Relaxed);
        }
    }
}

#[test]
fn each_has_its_own_rules() {
    let mut net = asking();
    let [a, b] = ["a", "b"].map(|name| {
        let id = net.try_connect(name, HELLO);
        assert_eq!(asked(&mut net).0, id);
        net.broker.handle_login(net.now, id, of(name));
        net.seen(id);
        id
    });
    net.subscribe(a, "#", Qos::AtLeastOnce);
    net.subscribe_with(b, "a/+", SubscriptionOptions::default(), &[]);
    assert_eq!(net.seen(b), [Seen::SubAck(vec![Reason::NOT_AUTHORIZED.0])]);
    net.publish(b, "a/1", "x", Qos::AtLeastOnce, 1);
    assert_eq!(net.seen(b), [Seen::PubAck(1, Reason::NOT_AUTHORIZED)]);
    net.publish(b, "b/1", "x", Qos::AtLeastOnce, 2);
    assert_eq!(net.seen(b), [Seen::PubAck(2, Reason::NO_MATCHING_SUBSCRIBERS)]);
    assert_eq!(net.heard(a), [], "its wildcard reaches no further than its rules");
    let hello = Hello { will: Some(will("b/1", "x", &[])), ..HELLO };
    let refused = log_in(&mut net, "a2", hello, "a");
    assert_eq!(refused, [Seen::ConnAck(false, Reason::NOT_AUTHORIZED)], "nor does its will");
}

#[test]
fn who_is_expelled_leaves_nothing() {
    let mut net = asking();
    let empty = net.broker.stats().bytes;
    let id = net.try_connect("a", KEPT);
    net.broker.handle_login(net.now, id, of("a"));
    net.subscribe(id, "#", Qos::AtLeastOnce);
    assert!(net.broker.expel(net.now, "a", Reason::NOT_AUTHORIZED));
    assert_eq!(net.seen(id), [Seen::Disconnect(Reason::NOT_AUTHORIZED)]);
    net.close(id);
    assert!(!net.broker.expel(net.now, "a", Reason::NOT_AUTHORIZED));
    assert_eq!((net.broker.stats().sessions, net.broker.stats().bytes), (0, empty));
    let host = net.broker.attach_host(net.now, "$host");
    assert!(!net.broker.expel(net.now, "$host", Reason::NOT_AUTHORIZED));
    assert!(net.broker.is_attached(host));
}

#[test]
fn who_has_proved_something_for_a_time_is_disconnected_after_it() {
    let mut net = asking();
    let until = |at| of("ann").map(|known| Admission { expires_at: Some(at), ..known });
    let a = net.try_connect("a", KEPT);
    let _ = asked(&mut net);
    let at = net.now + seconds(10);
    assert!(net.broker.handle_login(net.now, a, until(at)));
    net.pass(seconds(9));
    assert_eq!(net.seen(a), [Seen::ConnAck(false, Reason::SUCCESS)]);
    net.pass(seconds(1));
    assert_eq!(net.seen(a), [Seen::Disconnect(Reason::NOT_AUTHORIZED)]);
    let [told] = &net.told()[..] else { panic!("somebody is told") };
    assert_eq!((told.kind, told.client_id.as_deref()), (IncidentKind::Expired, Some("a")));
    assert!(net.is_closed(a));
    net.close(a);
    // Its session waits for it; of a connection that has gone there is no timer left.
    let again = net.try_connect("a", KEPT);
    let _ = asked(&mut net);
    let at = net.now + seconds(10);
    assert!(net.broker.handle_login(net.now, again, until(at)));
    assert_eq!(net.seen(again), [Seen::ConnAck(true, Reason::SUCCESS)]);
    net.close(again);
    let due = net.broker.poll_timeout().expect("its session ends");
    assert!(due > at, "{due:?}");
}

/// Who was refused what, and no more of it in memory than somebody may want to read.
#[test]
fn what_the_rules_refuse_is_told() {
    let mut net = asking();
    let b = net.try_connect("b", HELLO);
    assert_eq!(asked(&mut net).0, b);
    net.broker.handle_login(net.now, b, of("b"));
    net.seen(b);
    net.publish(b, "b/1", "x", Qos::AtLeastOnce, 1);
    net.subscribe(b, "b/+", Qos::AtLeastOnce);
    assert_eq!((net.told(), net.broker.stats().denied), (vec![], 0));
    net.publish(b, "a/1", "x", Qos::AtMostOnce, 0);
    net.publish(b, "a/2", "x", Qos::AtLeastOnce, 2);
    net.subscribe_with(b, "$share/s/a/+", SubscriptionOptions::default(), &[]);
    let hello = Hello { will: Some(will("a/3", "x", &[])), ..HELLO };
    log_in(&mut net, "b2", hello, "b");
    let told = net.told();
    let names = |told: &Incident| {
        assert_eq!(told.reason, Some(Reason::NOT_AUTHORIZED));
        (told.kind, told.client_id.clone(), told.topic.clone(), told.times)
    };
    let expected = |kind, client_id: &str, topic: &str, times| {
        (kind, Some(client_id.to_owned()), Some(topic.to_owned()), times)
    };
    assert_eq!(
        told.iter().map(names).collect::<Vec<_>>(),
        [
            expected(IncidentKind::Publish, "b", "a/1", 2),
            expected(IncidentKind::Subscribe, "b", "a/+", 1),
            expected(IncidentKind::Will, "b2", "a/3", 1),
        ]
    );
    assert_eq!((net.told(), net.broker.stats().denied), (vec![], 4));
    // Of long names only the begin.
    let long = format!("a{}", "\u{e9}".repeat(1_000));
    net.pass(seconds(10));
    for _ in 0..1_000 {
        net.publish(b, &long, "x", Qos::AtMostOnce, 0);
    }
    let [told] = &net.told()[..] else { panic!("one") };
    assert_eq!((told.times, net.broker.stats().denied), (1_000, 1_004));
    assert_eq!(told.topic, Some(format!("a{}", "\u{e9}".repeat(63))));
}

/// Who is neither there nor has left something to be taken need not be known.
#[test]
fn whom_the_host_may_hear_of_is_known() {
    let mut net = Net::new(Config::default());
    let host = net.broker.attach_host(net.now, "$host");
    let a = net.connect("a", HELLO);
    assert!(net.broker.concerns_host("a") && !net.broker.concerns_host("b"));
    net.close(a);
    assert!(net.broker.concerns_host("a"), "its end is still to be told");
    while net.broker.poll_local(net.now, host).is_some() {}
    assert!(!net.broker.concerns_host("a"));
}

/// Says and proves something by a method.
fn proof(method: &'static str, data: &'static [u8]) -> [Property<'static>; 3] {
    [
        Property::AuthenticationMethod(method),
        Property::AuthenticationData(data),
        Property::SessionExpiry(60),
    ]
}

fn authenticating() -> Net {
    let authentication_method = Some("TOKEN".into());
    Net::new(Config { asks_who: true, authentication_method, ..Config::default() })
}

/// Sends an AUTH.
fn prove(net: &mut Net, id: ConnectionId, reason: Reason, properties: &[Property<'_>]) {
    net.send(id, Packet::Auth(Notice { reason, properties }));
}

fn proved(net: &mut Net, id: ConnectionId, user: &str, at: u64) -> bool {
    let admission = Admission { expires_at: Some(seconds(at)), ..of(user).expect("a user") };
    let question = net.broker.poll_event();
    let Some(Event::Reauthenticate { connection, authentication_data, .. }) = question else {
        panic!("{question:?}")
    };
    assert_eq!((connection, &authentication_data[..]), (id, &b"again"[..]));
    net.broker.handle_reauthentication(net.now, id, Some(admission))
}

/// A client that has come in by a token, until second 10.
fn authenticated(net: &mut Net) -> ConnectionId {
    let properties = proof("TOKEN", b"secret");
    let id = net.try_connect("a", Hello { properties: &properties, ..HELLO });
    let question = net.broker.poll_event();
    assert!(!format!("{question:?}").contains("115"), "no secret is shown");
    let Some(Event::Login { authentication_data: Some(data), .. }) = question else { panic!() };
    assert_eq!(data, b"secret");
    let admission = Admission { expires_at: Some(seconds(10)), ..of("ann").expect("a user") };
    assert!(net.broker.handle_login(net.now, id, Ok(admission)));
    id
}

#[test]
fn a_method_is_offered_or_refused() {
    let properties = proof("TOKEN", b"");
    let hello = Hello { properties: &properties, ..HELLO };
    let refused = [Seen::ConnAck(false, Reason::BAD_AUTHENTICATION_METHOD)];
    let method = Some("TOKEN".to_owned());
    let unasked = Config { authentication_method: method, ..Config::default() };
    for config in [Config::default(), unasked, Config { asks_who: true, ..Config::default() }] {
        let mut net = Net::new(config);
        let id = net.try_connect("a", hello);
        assert_eq!((net.seen(id), net.is_closed(id)), (refused.to_vec(), true));
        assert_eq!(net.broker.poll_event(), None);
    }
    let mut net = authenticating();
    let other = proof("token", b"");
    let id = net.try_connect("a", Hello { properties: &other, ..HELLO });
    assert_eq!(net.seen(id), refused);
    let id = authenticated(&mut net);
    assert_eq!(net.seen(id), [Seen::ConnAck(false, Reason::SUCCESS)]);
}

#[test]
fn who_proves_itself_again_stays_and_is_not_read_from_meanwhile() {
    let mut net = authenticating();
    let id = authenticated(&mut net);
    let _ = net.seen(id);
    net.pass(seconds(5));
    prove(&mut net, id, Reason::RE_AUTHENTICATE, &proof("TOKEN", b"again")[..2]);
    net.publish(id, "a/1", "x", Qos::AtLeastOnce, 1);
    assert_eq!(net.seen(id), []);
    assert!(!net.broker.wants_input(id));
    assert!(proved(&mut net, id, "ann", 20));
    let acknowledged = Seen::PubAck(1, Reason::NO_MATCHING_SUBSCRIBERS);
    assert_eq!(net.seen(id), [Seen::Auth(Reason::SUCCESS, "TOKEN".into()), acknowledged]);
    assert!(!net.broker.handle_reauthentication(net.now, id, None), "nobody has asked");
    assert!(!net.is_closed(id));
    net.pass(seconds(10));
    assert!(!net.is_closed(id));
    net.pass(seconds(10));
    assert_eq!(net.seen(id), [Seen::Disconnect(Reason::NOT_AUTHORIZED)]);
    net.close(id);
    net.pass(seconds(100));
    assert_eq!(net.broker.stats().bytes, 0);
}

#[test]
fn who_proves_to_be_another_or_nothing_is_disconnected() {
    for user in [Some("abe"), None] {
        let mut net = authenticating();
        let id = authenticated(&mut net);
        let _ = net.seen(id);
        prove(&mut net, id, Reason::RE_AUTHENTICATE, &proof("TOKEN", b"again")[..2]);
        match user {
            Some(user) => assert!(!proved(&mut net, id, user, 20)),
            None => assert!(!net.broker.handle_reauthentication(net.now, id, None)),
        }
        assert_eq!(net.seen(id), [Seen::Disconnect(Reason::NOT_AUTHORIZED)]);
        assert!(net.is_closed(id));
    }
}

#[test]
fn an_auth_that_was_not_agreed_upon_is_a_protocol_error() {
    for (reason, method) in [
        (Reason::RE_AUTHENTICATE, "OTHER"),
        (Reason::CONTINUE_AUTHENTICATION, "TOKEN"),
        (Reason::SUCCESS, "TOKEN"),
    ] {
        let mut net = authenticating();
        let id = authenticated(&mut net);
        let _ = net.seen(id);
        prove(&mut net, id, reason, &proof(method, b"again")[..2]);
        assert_eq!(net.seen(id), [Seen::Disconnect(Reason::PROTOCOL_ERROR)], "{reason} {method}");
    }
    // Without a method in the CONNECT, and before one.
    let mut net = authenticating();
    log_in(&mut net, "a", HELLO, "ann");
    let id = net.try_connect("a2", HELLO);
    net.broker.handle_login(net.now, id, of("ann"));
    let _ = net.seen(id);
    prove(&mut net, id, Reason::RE_AUTHENTICATE, &proof("TOKEN", b"again")[..2]);
    assert_eq!(net.seen(id), [Seen::Disconnect(Reason::PROTOCOL_ERROR)]);
    let early = net.accept().expect("room");
    prove(&mut net, early, Reason::RE_AUTHENTICATE, &proof("TOKEN", b"again")[..2]);
    assert_eq!((net.seen(early), net.is_closed(early)), (vec![], true));
}
