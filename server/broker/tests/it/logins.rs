//! Authentication by the program around the broker, and authorization by rules.

use std::sync::Arc;

use statestore_broker::{Acl, Admission, Event, LocalEvent, SenderDetails};

use super::*;

/// Permits client ids and topics that begin with this letter.
struct Prefix(char);

impl Acl for Prefix {
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

fn broker_with_logins() -> Net {
    Net::new(Config { requires_login: true, ..Config::default() })
}

fn admit(user: &str) -> Result<Admission, Reason> {
    let rules = Prefix(user.chars().next().expect("a user name"));
    Ok(Admission { user: Some(user.into()), acl: Some(Arc::new(rules)), ..Admission::default() })
}

/// The connection and the client id of the next login request.
fn poll_login(net: &mut Net) -> (ConnectionId, String) {
    let Some(Event::Login { connection, client_id, .. }) = net.broker.poll_event() else {
        panic!("no login request")
    };
    (connection, client_id)
}

fn log_in(
    net: &mut Net,
    client_id: &str,
    options: ConnectOptions<'_>,
    user: &str,
) -> Vec<Received> {
    let id = net.try_connect(client_id, options);
    assert_eq!(poll_login(net), (id, client_id.to_owned()));
    net.broker.handle_login(net.now, id, admit(user));
    net.receive(id)
}

#[test]
fn packets_wait_until_the_login_is_decided() {
    let mut net = broker_with_logins();
    let a = net.try_connect("a", CLEAN);
    net.publish(a, "a/1", "early", Qos::AtLeastOnce, 1);
    assert_eq!((net.receive(a), net.broker.is_connected("a")), (vec![], false));
    assert_eq!(poll_login(&mut net).0, a);
    assert_eq!(net.broker.poll_event(), None);
    net.broker.handle_login(net.now, a, admit("a"));
    let expected = [
        Received::ConnAck(false, Reason::SUCCESS),
        Received::PubAck(1, Reason::NO_MATCHING_SUBSCRIBERS),
    ];
    assert_eq!(net.receive(a), expected);
    assert!(!net.broker.handle_login(net.now, a, Err(Reason::BANNED)));
    assert!(net.broker.is_connected("a"), "the first decision is final");
}

/// MQTT-3.1.4-2
#[test]
fn rejected_client_receives_the_reason() {
    let mut net = broker_with_logins();
    let a = net.try_connect("a", CLEAN);
    net.broker.handle_login(net.now, a, Err(Reason::BAD_USER_NAME_OR_PASSWORD));
    let expected = vec![Received::ConnAck(false, Reason::BAD_USER_NAME_OR_PASSWORD)];
    assert_eq!((net.receive(a), net.is_closed(a)), (expected, true));
    let other = net.try_connect("x", CLEAN);
    assert!(!net.broker.handle_login(net.now, other, admit("a")));
    assert_eq!(
        net.receive(other),
        [Received::ConnAck(false, Reason::NOT_AUTHORIZED)],
        "the rules reject the client id"
    );
    assert_eq!(net.broker.stats().sessions, 0);
}

#[test]
fn decision_for_a_closed_connection_has_no_effect() {
    let mut net = broker_with_logins();
    let a = net.try_connect("a", CLEAN);
    net.close(a);
    assert!(!net.broker.handle_login(net.now, a, admit("a")));
    let silent = net.try_connect("a", CLEAN);
    net.advance(seconds(3_600));
    assert_eq!((net.receive(silent), net.is_closed(silent)), (vec![], true));
    net.broker.handle_login(net.now, silent, admit("a"));
    net.close(silent);
    let stats = net.broker.stats();
    assert_eq!((stats.connections, stats.sessions, stats.bytes), (0, 0, 0));
}

#[test]
fn login_of_an_empty_client_id_names_the_assigned_one() {
    let mut net = broker_with_logins();
    let id = net.try_connect("", CLEAN);
    let (_, client_id) = poll_login(&mut net);
    assert!(client_id.starts_with("assigned-"));
    net.broker.handle_login(net.now, id, admit("assigned"));
    assert_eq!(net.receive(id), [Received::ConnAck(false, Reason::SUCCESS)]);
    assert!(net.broker.is_connected(&client_id));
}

/// MQTT-3.1.3-8
#[test]
fn session_of_another_user_cannot_be_taken_over() {
    let mut net = broker_with_logins();
    let rejected = [Received::ConnAck(false, Reason::CLIENT_IDENTIFIER_NOT_VALID)];
    assert_eq!(
        log_in(&mut net, "a1", PERSISTENT, "ann"),
        [Received::ConnAck(false, Reason::SUCCESS)]
    );
    assert_eq!(log_in(&mut net, "a1", CLEAN, "abe"), rejected);
    assert!(net.broker.is_connected("a1"));
    assert_eq!(
        log_in(&mut net, "a1", PERSISTENT, "ann"),
        [Received::ConnAck(true, Reason::SUCCESS)]
    );
    net.broker.disconnect(net.now, "a1", Reason::ADMINISTRATIVE_ACTION);
    assert_eq!(
        log_in(&mut net, "a1", PERSISTENT, "abe"),
        rejected,
        "the session of the other user still exists"
    );
    net.advance(seconds(61));
    assert_eq!(log_in(&mut net, "a1", CLEAN, "abe"), [Received::ConnAck(false, Reason::SUCCESS)]);
    let local = net.broker.attach(net.now, "a2").unwrap();
    assert_eq!(
        log_in(&mut net, "a2", CLEAN, "ann"),
        rejected,
        "the id belongs to an attached client"
    );
    assert!(net.broker.is_attached(local));
}

#[test]
fn session_of_a_disconnected_user_that_loses_nothing_gives_way_to_clean_start() {
    let mut net = broker_with_logins();
    let rejected = [Received::ConnAck(false, Reason::CLIENT_IDENTIFIER_NOT_VALID)];
    let accepted = [Received::ConnAck(false, Reason::SUCCESS)];
    let a1 = net.try_connect("a1", PERSISTENT);
    net.broker.handle_login(net.now, a1, admit("ann"));
    assert_eq!(net.receive(a1), accepted);
    net.close(a1);
    while net.broker.poll_event().is_some() {}
    assert_eq!(log_in(&mut net, "a1", CLEAN, "abe"), rejected, "responses may still come");
    net.advance(seconds(30));
    assert_eq!(log_in(&mut net, "a1", PERSISTENT, "abe"), rejected, "without Clean Start");
    assert_eq!(log_in(&mut net, "a1", CLEAN, "abe"), accepted);
    let a2 = net.try_connect("a2", PERSISTENT);
    net.broker.handle_login(net.now, a2, admit("ann"));
    net.receive(a2);
    net.subscribe(a2, "a/1", Qos::AtLeastOnce);
    net.close(a2);
    net.advance(seconds(30));
    while net.broker.poll_event().is_some() {}
    assert_eq!(log_in(&mut net, "a2", CLEAN, "abe"), rejected, "with a subscription");
}

/// The reason code is the same.
#[test]
fn reason_string_distinguishes_a_used_client_id_from_one_that_is_not_permitted() {
    let mut net = broker_with_logins();
    let ann = net.try_connect("a1", CLEAN);
    net.broker.handle_login(net.now, ann, admit("ann"));
    for (outcome, expected) in [
        (admit("abe"), "another user has a session with this client id"),
        (
            Err(Reason::CLIENT_IDENTIFIER_NOT_VALID),
            "the client id is invalid or the login does not permit it",
        ),
    ] {
        let id = net.try_connect("a1", CLEAN);
        net.broker.handle_login(net.now, id, outcome);
        let texts = net.receive_as(id, |packet| match packet {
            Packet::ConnAck(ack) => ack.properties.iter().find_map(|property| match property {
                Property::ReasonString(text) => Some(text.to_owned()),
                _ => None,
            }),
            _ => None,
        });
        assert_eq!(texts, [Some(expected.to_owned())]);
    }
}

/// Otherwise the host could attribute a request to the next user of the client id.
#[test]
fn client_id_is_busy_for_other_users_until_the_host_took_its_requests() {
    let mut net = broker_with_logins();
    let host = net.broker.attach_host(net.now, "$host");
    let subscription =
        Subscription { filter: "a/request", options: SubscriptionOptions::default() };
    net.broker.subscribe_local(host, &subscription);
    let ann = net.try_connect("a", CLEAN);
    assert_eq!(poll_login(&mut net).0, ann);
    net.broker.handle_login(net.now, ann, admit("ann"));
    net.publish(ann, "a/request", "x", Qos::AtLeastOnce, 1);
    net.close(ann);
    let busy = [Received::ConnAck(false, Reason::SERVER_BUSY)];
    assert_eq!(log_in(&mut net, "a", CLEAN, "abe"), busy);
    while net.broker.poll_local(net.now, host).is_some() {}
    assert_eq!(log_in(&mut net, "a", CLEAN, "abe"), [Received::ConnAck(false, Reason::SUCCESS)]);
}

/// Rules with details.
struct Detailed(u8);

impl Acl for Detailed {
    fn details(&self) -> Option<SenderDetails> {
        Some(Arc::new(self.0))
    }
}

/// A login changes nothing for messages that the broker accepted before it.
#[test]
fn host_receives_each_message_with_the_details_of_its_login() {
    let mut net = broker_with_logins();
    let host = net.broker.attach_host(net.now, "$host");
    let options = SubscriptionOptions::default();
    net.broker.subscribe_local(host, &Subscription { filter: "a/#", options });
    for (login, payload) in [(1, "x"), (2, "y")] {
        let options = ConnectOptions { will: Some(will("a/will", "will", &[])), ..PERSISTENT };
        let id = net.try_connect("a", options);
        let rules = Some(Arc::new(Detailed(login)) as Arc<dyn Acl>);
        let admission = Admission { acl: rules, ..Admission::default() };
        assert!(net.broker.handle_login(net.now, id, Ok(admission)));
        net.publish(id, "a/request", payload, Qos::AtLeastOnce, 1);
        net.close(id);
    }
    let mut received = Vec::new();
    while let Some(event) = net.broker.poll_local(net.now, host) {
        if let LocalEvent::Message(message, details) = event {
            let details = details.expect("details");
            let login = details.downcast_ref::<u8>().copied();
            received.push((String::from_utf8_lossy(&message.payload()).into_owned(), login));
        }
    }
    // A will is no request: its client is gone.
    let expected = [("x", 1), ("y", 2)];
    assert_eq!(received, expected.map(|(text, login)| (text.to_owned(), Some(login))));
}

/// Rules that hold until the flag is set.
struct Until(Arc<std::sync::atomic::AtomicBool>);

impl Acl for Until {
    fn is_current(&self, _: &str) -> bool {
        !self.0.load(std::sync::atomic::Ordering::Relaxed)
    }
}

#[test]
fn recheck_drops_the_will_and_the_waiting_messages_of_a_client() {
    let mut net = broker_with_logins();
    let host = net.broker.attach_host(net.now, "$host");
    let options = SubscriptionOptions::default();
    net.broker.subscribe_local(host, &Subscription { filter: "a/#", options });
    let other = net.try_connect("other", CLEAN);
    assert!(net.broker.handle_login(net.now, other, Ok(Admission::default())));
    net.receive(other);
    net.subscribe(other, "will", Qos::AtLeastOnce);
    let expired: Arc<std::sync::atomic::AtomicBool> = Arc::default();
    for delay in [0, 5] {
        expired.store(false, std::sync::atomic::Ordering::Relaxed);
        let delay = [Property::WillDelay(delay)];
        let options = ConnectOptions { will: Some(will("will", "will", &delay)), ..PERSISTENT };
        let id = net.try_connect("a", options);
        let acl = Some(Arc::new(Until(Arc::clone(&expired))) as Arc<dyn Acl>);
        let admission = Admission { acl, ..Admission::default() };
        assert!(net.broker.handle_login(net.now, id, Ok(admission)));
        net.publish(id, "a/request", "x", Qos::AtLeastOnce, 1);
        if delay != [Property::WillDelay(0)] {
            net.close(id);
        }
        expired.store(true, std::sync::atomic::Ordering::Relaxed);
        assert_eq!(net.broker.recheck(net.now), 1);
        let event = net.broker.poll_local(net.now, host);
        assert!(matches!(event, Some(LocalEvent::Gone(_))), "{event:?}");
        assert!(net.broker.poll_local(net.now, host).is_none());
        net.now += seconds(10);
        net.broker.handle_timeout(net.now);
        assert!(net.receive_payloads(other).is_empty());
    }
}

/// Two logins can have one client id and different rights, for example two certificates.
#[test]
fn session_with_a_subscription_that_the_next_login_may_not_make_is_not_resumed() {
    let mut net = broker_with_logins();
    for (letter, is_resumed) in [('a', false), ('a', true), ('b', false)] {
        let id = net.try_connect("a", PERSISTENT);
        let acl = Some(Arc::new(Only(letter)) as Arc<dyn Acl>);
        assert!(net.broker.handle_login(
            net.now,
            id,
            Ok(Admission { acl, ..Admission::default() })
        ));
        assert_eq!(net.receive(id), [Received::ConnAck(is_resumed, Reason::SUCCESS)]);
        if letter == 'a' {
            net.subscribe(id, "$share/group/a", Qos::AtLeastOnce);
        }
        net.close(id);
    }
}

/// Permits subscriptions to topics that begin with this letter.
struct Only(char);

impl Acl for Only {
    fn may_subscribe(&self, _: &str, filter: &str) -> Result<(), Reason> {
        if filter.starts_with(self.0) { Ok(()) } else { Err(Reason::NOT_AUTHORIZED) }
    }
}

#[test]
fn recheck_ends_sessions_whose_rules_no_longer_hold() {
    let mut net = broker_with_logins();
    let expired = Arc::default();
    for (name, rules) in [("away", true), ("connected", true), ("stays", false)] {
        let id = net.try_connect(name, PERSISTENT);
        let rules: Option<Arc<dyn Acl>> = match rules {
            true => Some(Arc::new(Until(Arc::clone(&expired)))),
            false => None,
        };
        assert!(net.broker.handle_login(
            net.now,
            id,
            Ok(Admission { acl: rules, ..Admission::default() })
        ));
        net.receive(id);
        if name == "away" {
            net.close(id);
        }
    }
    assert_eq!((net.broker.recheck(net.now), net.broker.stats().sessions), (0, 3));
    expired.store(true, std::sync::atomic::Ordering::Relaxed);
    assert_eq!((net.broker.recheck(net.now), net.broker.stats().sessions), (2, 1));
    assert!(net.broker.is_connected("stays") && !net.broker.is_connected("connected"));
}

/// Subscriptions that former rules permitted are discarded, even without a recheck in between.
#[test]
fn session_whose_rules_no_longer_hold_is_not_resumed() {
    for expires in [false, true] {
        let mut net = broker_with_logins();
        let expired: Arc<std::sync::atomic::AtomicBool> = Arc::default();
        let rules = || Some(Arc::new(Until(Arc::clone(&expired))) as Arc<dyn Acl>);
        for expected in [false, !expires] {
            let id = net.try_connect("a", PERSISTENT);
            let admission = Admission { acl: rules(), ..Admission::default() };
            net.broker.handle_login(net.now, id, Ok(admission));
            assert_eq!(net.receive(id), [Received::ConnAck(expected, Reason::SUCCESS)]);
            net.close(id);
            expired.store(expires, std::sync::atomic::Ordering::Relaxed);
        }
    }
}

#[test]
fn access_rules_apply_per_client() {
    let mut net = broker_with_logins();
    let [a, b] = ["a", "b"].map(|name| {
        let id = net.try_connect(name, CLEAN);
        assert_eq!(poll_login(&mut net).0, id);
        net.broker.handle_login(net.now, id, admit(name));
        net.receive(id);
        id
    });
    net.subscribe(a, "#", Qos::AtLeastOnce);
    net.subscribe_with(b, "a/+", SubscriptionOptions::default(), &[]);
    assert_eq!(net.receive(b), [Received::SubAck(vec![Reason::NOT_AUTHORIZED.0])]);
    net.publish(b, "a/1", "x", Qos::AtLeastOnce, 1);
    assert_eq!(net.receive(b), [Received::PubAck(1, Reason::NOT_AUTHORIZED)]);
    net.publish(b, "b/1", "x", Qos::AtLeastOnce, 2);
    assert_eq!(net.receive(b), [Received::PubAck(2, Reason::NO_MATCHING_SUBSCRIBERS)]);
    assert_eq!(net.receive_messages(a), [], "rules also limit wildcard subscriptions");
    let options = ConnectOptions { will: Some(will("b/1", "x", &[])), ..CLEAN };
    let rejected = log_in(&mut net, "a2", options, "a");
    assert_eq!(
        rejected,
        [Received::ConnAck(false, Reason::NOT_AUTHORIZED)],
        "rules also limit wills"
    );
}

#[test]
fn terminated_client_loses_its_session() {
    let mut net = broker_with_logins();
    let empty = net.broker.stats().bytes;
    let id = net.try_connect("a", PERSISTENT);
    net.broker.handle_login(net.now, id, admit("a"));
    net.subscribe(id, "#", Qos::AtLeastOnce);
    assert!(net.broker.terminate_session(net.now, "a", Reason::NOT_AUTHORIZED));
    assert_eq!(net.receive(id), [Received::Disconnect(Reason::NOT_AUTHORIZED)]);
    net.close(id);
    assert!(!net.broker.terminate_session(net.now, "a", Reason::NOT_AUTHORIZED));
    assert_eq!((net.broker.stats().sessions, net.broker.stats().bytes), (0, empty));
    let host = net.broker.attach_host(net.now, "$host");
    assert!(!net.broker.terminate_session(net.now, "$host", Reason::NOT_AUTHORIZED));
    assert!(net.broker.is_attached(host));
}

#[test]
fn client_is_disconnected_when_its_login_expires() {
    let mut net = broker_with_logins();
    let until = |at| admit("ann").map(|admission| Admission { expires_at: Some(at), ..admission });
    let a = net.try_connect("a", PERSISTENT);
    let _ = poll_login(&mut net);
    let at = net.now + seconds(10);
    assert!(net.broker.handle_login(net.now, a, until(at)));
    net.advance(seconds(9));
    assert_eq!(net.receive(a), [Received::ConnAck(false, Reason::SUCCESS)]);
    net.advance(seconds(1));
    assert_eq!(net.receive(a), [Received::Disconnect(Reason::NOT_AUTHORIZED)]);
    let [incident] = &net.drain_incidents()[..] else { panic!("not exactly one incident") };
    assert_eq!((incident.kind, incident.client_id.as_deref()), (IncidentKind::Expired, Some("a")));
    assert!(net.is_closed(a));
    net.close(a);
    // The session still exists. A closed connection leaves no login deadline.
    let again = net.try_connect("a", PERSISTENT);
    let _ = poll_login(&mut net);
    let at = net.now + seconds(10);
    assert!(net.broker.handle_login(net.now, again, until(at)));
    assert_eq!(net.receive(again), [Received::ConnAck(true, Reason::SUCCESS)]);
    net.close(again);
    let due = net.broker.poll_timeout().expect("the session expires");
    assert!(due > at, "{due:?}");
}

/// Denials are reported with client id and topic, and a long topic is truncated.
#[test]
fn denials_are_reported_with_truncated_topics() {
    let mut net = broker_with_logins();
    let b = net.try_connect("b", CLEAN);
    assert_eq!(poll_login(&mut net).0, b);
    net.broker.handle_login(net.now, b, admit("b"));
    net.receive(b);
    net.publish(b, "b/1", "x", Qos::AtLeastOnce, 1);
    net.subscribe(b, "b/+", Qos::AtLeastOnce);
    assert_eq!((net.drain_incidents(), net.broker.stats().denied), (vec![], 0));
    net.publish(b, "a/1", "x", Qos::AtMostOnce, 0);
    net.publish(b, "a/2", "x", Qos::AtLeastOnce, 2);
    net.subscribe_with(b, "$share/s/a/+", SubscriptionOptions::default(), &[]);
    let options = ConnectOptions { will: Some(will("a/3", "x", &[])), ..CLEAN };
    log_in(&mut net, "b2", options, "b");
    let incidents = net.drain_incidents();
    let fields = |incident: &Incident| {
        assert_eq!(incident.reason, Some(Reason::NOT_AUTHORIZED));
        (incident.kind, incident.client_id.clone(), incident.topic.clone(), incident.count)
    };
    let expected = |kind, client_id: &str, topic: &str, times| {
        (kind, Some(client_id.to_owned()), Some(topic.to_owned()), times)
    };
    assert_eq!(
        incidents.iter().map(fields).collect::<Vec<_>>(),
        [
            expected(IncidentKind::Publish, "b", "a/1", 2),
            expected(IncidentKind::Subscribe, "b", "a/+", 1),
            expected(IncidentKind::Will, "b2", "a/3", 1),
        ]
    );
    assert_eq!((net.drain_incidents(), net.broker.stats().denied), (vec![], 4));
    // Only the beginning of a long topic is stored.
    let long = format!("a{}", "\u{e9}".repeat(1_000));
    net.advance(seconds(10));
    for _ in 0..1_000 {
        net.publish(b, &long, "x", Qos::AtMostOnce, 0);
    }
    let [incident] = &net.drain_incidents()[..] else { panic!("not exactly one incident") };
    assert_eq!((incident.count, net.broker.stats().denied), (1_000, 1_004));
    assert_eq!(incident.topic, Some(format!("a{}", "\u{e9}".repeat(63))));
}

/// Properties for enhanced authentication.
fn authentication(method: &'static str, data: &'static [u8]) -> [Property<'static>; 3] {
    [
        Property::AuthenticationMethod(method),
        Property::AuthenticationData(data),
        Property::SessionExpiry(60),
    ]
}

fn broker_with_authentication() -> Net {
    let authentication_method = Some("TOKEN".into());
    Net::new(Config { requires_login: true, authentication_method, ..Config::default() })
}

/// Sends an AUTH.
fn send_auth(net: &mut Net, id: ConnectionId, reason: Reason, properties: &[Property<'_>]) {
    net.send(id, Packet::Auth(Notice { reason, properties }));
}

/// Expects a reauthentication request and admits the user until second `at`.
fn admit_again(net: &mut Net, id: ConnectionId, user: &str, at: u64) -> bool {
    let admission =
        Admission { expires_at: Some(seconds(at)), ..admit(user).expect("an admission") };
    let event = net.broker.poll_event();
    let Some(Event::Reauthenticate { connection, authentication_data, .. }) = event else {
        panic!("{event:?}")
    };
    assert_eq!((connection, &authentication_data[..]), (id, &b"again"[..]));
    net.broker.handle_reauthentication(net.now, id, Some(admission))
}

/// Connects a client with a token that is valid until second 10.
fn connect_with_token(net: &mut Net) -> ConnectionId {
    let properties = authentication("TOKEN", b"secret");
    let id = net.try_connect("a", ConnectOptions { properties: &properties, ..CLEAN });
    let event = net.broker.poll_event();
    assert!(!format!("{event:?}").contains("115"), "debug output contains the secret");
    let Some(Event::Login { authentication_data: Some(data), .. }) = event else { panic!() };
    assert_eq!(data, b"secret");
    let admission =
        Admission { expires_at: Some(seconds(10)), ..admit("ann").expect("an admission") };
    assert!(net.broker.handle_login(net.now, id, Ok(admission)));
    id
}

/// MQTT-4.12.0-1
#[test]
fn only_the_configured_authentication_method_is_accepted() {
    let properties = authentication("TOKEN", b"");
    let options = ConnectOptions { properties: &properties, ..CLEAN };
    let rejected = [Received::ConnAck(false, Reason::BAD_AUTHENTICATION_METHOD)];
    let method = Some("TOKEN".to_owned());
    let without_logins = Config { authentication_method: method, ..Config::default() };
    for config in
        [Config::default(), without_logins, Config { requires_login: true, ..Config::default() }]
    {
        let mut net = Net::new(config);
        let id = net.try_connect("a", options);
        assert_eq!((net.receive(id), net.is_closed(id)), (rejected.to_vec(), true));
        assert_eq!(net.broker.poll_event(), None);
    }
    let mut net = broker_with_authentication();
    let other = authentication("token", b"");
    let id = net.try_connect("a", ConnectOptions { properties: &other, ..CLEAN });
    assert_eq!(net.receive(id), rejected);
    let id = connect_with_token(&mut net);
    assert_eq!(net.receive(id), [Received::ConnAck(false, Reason::SUCCESS)]);
}

/// MQTT-4.12.0-5, 4.12.1-1
#[test]
fn reauthentication_pauses_reading_and_extends_the_login() {
    let mut net = broker_with_authentication();
    let id = connect_with_token(&mut net);
    let _ = net.receive(id);
    net.advance(seconds(5));
    send_auth(&mut net, id, Reason::RE_AUTHENTICATE, &authentication("TOKEN", b"again")[..2]);
    net.publish(id, "a/1", "x", Qos::AtLeastOnce, 1);
    assert_eq!(net.receive(id), []);
    assert!(!net.broker.wants_input(id));
    assert!(admit_again(&mut net, id, "ann", 20));
    let acknowledged = Received::PubAck(1, Reason::NO_MATCHING_SUBSCRIBERS);
    assert_eq!(net.receive(id), [Received::Auth(Reason::SUCCESS, "TOKEN".into()), acknowledged]);
    assert!(
        !net.broker.handle_reauthentication(net.now, id, None),
        "no reauthentication is pending"
    );
    assert!(!net.is_closed(id));
    net.advance(seconds(10));
    assert!(!net.is_closed(id));
    net.advance(seconds(10));
    assert_eq!(net.receive(id), [Received::Disconnect(Reason::NOT_AUTHORIZED)]);
    net.close(id);
    net.advance(seconds(100));
    assert_eq!(net.broker.stats().bytes, 0);
}

/// MQTT-4.12.1-2
#[test]
fn failed_reauthentication_or_another_user_disconnects() {
    for user in [Some("abe"), None] {
        let mut net = broker_with_authentication();
        let id = connect_with_token(&mut net);
        let _ = net.receive(id);
        send_auth(&mut net, id, Reason::RE_AUTHENTICATE, &authentication("TOKEN", b"again")[..2]);
        match user {
            Some(user) => assert!(!admit_again(&mut net, id, user, 20)),
            None => assert!(!net.broker.handle_reauthentication(net.now, id, None)),
        }
        assert_eq!(net.receive(id), [Received::Disconnect(Reason::NOT_AUTHORIZED)]);
        assert!(net.is_closed(id));
    }
}

#[test]
fn unexpected_auth_is_a_protocol_error() {
    for (reason, method) in [
        (Reason::RE_AUTHENTICATE, "OTHER"),
        (Reason::CONTINUE_AUTHENTICATION, "TOKEN"),
        (Reason::SUCCESS, "TOKEN"),
    ] {
        let mut net = broker_with_authentication();
        let id = connect_with_token(&mut net);
        let _ = net.receive(id);
        send_auth(&mut net, id, reason, &authentication(method, b"again")[..2]);
        assert_eq!(
            net.receive(id),
            [Received::Disconnect(Reason::PROTOCOL_ERROR)],
            "{reason} {method}"
        );
    }
    // AUTH after a CONNECT without a method, and before a CONNECT.
    let mut net = broker_with_authentication();
    log_in(&mut net, "a", CLEAN, "ann");
    let id = net.try_connect("a2", CLEAN);
    net.broker.handle_login(net.now, id, admit("ann"));
    let _ = net.receive(id);
    send_auth(&mut net, id, Reason::RE_AUTHENTICATE, &authentication("TOKEN", b"again")[..2]);
    assert_eq!(net.receive(id), [Received::Disconnect(Reason::PROTOCOL_ERROR)]);
    let early = net.accept().expect("the broker accepts the connection");
    send_auth(&mut net, early, Reason::RE_AUTHENTICATE, &authentication("TOKEN", b"again")[..2]);
    assert_eq!((net.receive(early), net.is_closed(early)), (vec![], true));
}

#[test]
fn expired_login_of_a_closing_connection_is_not_reported() {
    let mut net = broker_with_logins();
    let a = net.try_connect("a", PERSISTENT);
    let _ = poll_login(&mut net);
    let admission =
        Admission { expires_at: Some(net.now + seconds(1)), ..admit("ann").expect("an admission") };
    assert!(net.broker.handle_login(net.now, a, Ok(admission)));
    assert!(net.broker.terminate_session(net.now, "a", Reason::NOT_AUTHORIZED));
    net.advance(seconds(2));
    assert_eq!(net.drain_incidents(), []);
}
