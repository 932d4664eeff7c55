//! Two users on one broker, and what a policy keeps apart: tried by one of them with raw packets.

use statestore_embedded::policy::Policy;
use statestore_embedded::{SharedPolicy, SharedUsers, Users};
use statestore_proto::topic::REQUEST;
use statestore_tests::mqttbytes::v5::{ConnectReturnCode, PubAckReason, SubscribeReasonCode};
use statestore_tests::raw::{Ask, notification_topic, words};

use super::*;

const OWN_RULES: &str = r#"
  - principals: {usernames: ["*"]}
    brokerResources:
      - method: Connect
      - method: Publish
        topics: ["statestore/v1/FA9AE35F-2F64-47CD-9BFF-08E2B32A0FE8/command/invoke", "news/{principal.username}/#"]
      - method: Subscribe
        topics: ["clients/{principal.clientId}/#", "clients/statestore/+/+/+/command/notify/#", "news/{principal.username}/#", "alarms/#"]
    stateStoreResources:
      - {method: ReadWrite, keys: ["private/{principal.username}/*"]}
"#;

const ANNS_RULES: &str = r#"
  - principals: {usernames: [ann]}
    brokerResources:
      - {method: Connect, clientIds: ["station-?"]}
    stateStoreResources:
      - {method: Write, keyType: String, keys: ["shared/k"]}
      - {method: Read, keys: ["shared/*"]}
"#;

const BOBS_RULES: &str = r#"
  - principals: {usernames: [bob]}
    stateStoreResources:
      - {method: Read, keys: ["shared/*"]}
"#;

fn policy(others: &str) -> Policy {
    Policy::parse(&format!("rules:{OWN_RULES}{ANNS_RULES}{others}")).expect("a policy")
}

fn users(names: &[&str]) -> Users {
    let mut users = Users::default();
    names.iter().for_each(|name| users.set(name, "secret").expect("a user"));
    users
}

fn login(user: &'static str) -> Hello<'static> {
    Hello { login: Some((user, "secret")), ..Hello::default() }
}

/// A broker with ann and bob, and what there is to be had: a private key of each, and a shared one.
struct Place {
    broker: Broker,
    _service: StoreService,
    policy: SharedPolicy,
    users: SharedUsers,
}

impl Place {
    async fn start() -> Self {
        let (policy, users) = (policy(BOBS_RULES).into(), users(&["ann", "bob"]).into());
        let options = options().policy(SharedPolicy::clone(&policy));
        let (broker, service) = start(options.users(SharedUsers::clone(&users))).await;
        Self { broker, _service: service, policy, users }
    }

    fn open(&self, client_id: &str, hello: Hello<'_>) -> Result<Raw, Option<ConnectReturnCode>> {
        Raw::try_open(self.broker.local_addr().port(), client_id, hello)
    }

    fn client(&self, client_id: &str, user: &'static str) -> Raw {
        let mut raw = self.open(client_id, login(user)).expect("a connection");
        assert_eq!(raw.subscribe(&response_topic(client_id)), GRANTED);
        assert_eq!(raw.subscribe(&notification_topic(client_id, None)), GRANTED);
        raw
    }
}

const GRANTED: SubscribeReasonCode =
    SubscribeReasonCode::Success(statestore_tests::mqttbytes::QoS::AtLeastOnce);

/// Whether nothing has arrived that was not taken, before the answer to what it asks now.
fn hears_nothing(raw: &mut Raw) -> bool {
    assert_eq!(raw.command(&["GET", "shared/absent"]).get(..1), Some(&b"$"[..]));
    raw.heard().is_empty()
}

const REFUSED: &[u8] = b"-ERR not authorized\r\n";

#[tokio::test(flavor = "multi_thread")]
async fn each_does_what_the_policy_allows() {
    let place = Place::start().await;
    let mut ann = place.client("ann-1", "ann");
    assert_eq!(ann.command(&["SET", "private/ann/k", "v"]), b"+OK\r\n");
    assert_eq!(ann.command(&["GET", "private/ann/k"]), b"$1\r\nv\r\n");
    assert_eq!(ann.command(&["KEYNOTIFY", "shared/k"]), b"+OK\r\n");
    assert_eq!(ann.command(&["SET", "shared/k", "v"]), b"+OK\r\n");
    assert!(ann.notification().payload.starts_with(b"*"));
    let mut bob = place.client("bob", "bob");
    assert_eq!(bob.command(&["GET", "shared/k"]), b"$1\r\nv\r\n");
    assert_eq!(bob.command(&["SET", "private/bob/k", "v"]), b"+OK\r\n");
    let listed = bob.command(&["SCAN", "**"]);
    let listed = String::from_utf8(listed).expect("text");
    assert!(listed.contains("private/bob/k") && listed.contains("shared/k"), "{listed}");
    assert!(!listed.contains("ann"), "{listed}");
    let mut station = place.client("station-1", "ann");
    assert_eq!(station.command(&["VDEL", "private/ann/k", "v"]), b":1\r\n");
    assert_eq!(bob.subscribe("news/bob/+"), GRANTED);
    assert_eq!(bob.publish("news/bob/x", false, "x"), PubAckReason::Success);
    assert_eq!(bob.message().topic, "news/bob/x");
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_reads_writes_watches_or_lists_what_is_of_another() {
    let place = Place::start().await;
    let mut ann = place.client("ann", "ann");
    assert_eq!(ann.command(&["SET", "private/ann/k", "v"]), b"+OK\r\n");
    assert_eq!(ann.command(&["SET", "shared/k", "v"]), b"+OK\r\n");
    assert_eq!(ann.command(&["KEYNOTIFY", "private/ann/k"]), b"+OK\r\n");
    let mut bob = place.client("bob", "bob");
    for request in [
        &["GET", "private/ann/k"][..],
        &["SET", "private/ann/k", "w"],
        &["SET", "private/ann/k", "w", "NX"],
        &["SET", "private/ann/k", "v", "NEX", "PX", "10000"],
        &["DEL", "private/ann/k"],
        &["VDEL", "private/ann/k", "v"],
        &["KEYNOTIFY", "private/ann/k"],
        &["KEYNOTIFY", "private/ann/k", "STOP"],
        &["GET", "private/ann/absent"],
        &["GET", "private/*/k"],
        &["GET", "private/"],
        &["GET", "private/bobby/k"],
        &["SET", "shared/k", "w"],
        &["SET", "shared/k", "v", "NEX"],
        &["DEL", "shared/k"],
        &["GET", "elsewhere"],
    ] {
        assert_eq!(bob.command(request), REFUSED, "{request:?}");
    }
    for pattern in ["private/ann/*", "private/ann/k", "*/k", "private/[a]*/k"] {
        let listed = String::from_utf8(bob.command(&["SCAN", pattern])).expect("text");
        assert!(!listed.contains("ann"), "{pattern}: {listed}");
    }
    // In another's name, which the broker knows to be wrong.
    let get = || Ask::deployed("bob", words(&["GET", "private/ann/k"]));
    let claim = get().replacing("__srcId", "ann");
    assert_eq!(bob.answer(&claim), REFUSED);
    // To where another would hear it, or nobody may.
    assert_eq!(bob.subscribe("alarms/#"), GRANTED);
    let hex = "clients/616E6E/x";
    for topic in ["clients/ann/x", hex, "news/ann/x", "news/x", "x", "alarms/fire", REQUEST] {
        let ask = Ask { response_topic: Some(topic.into()), ..get() };
        assert_eq!(bob.put(&ask), Some(PubAckReason::NotAuthorized), "{topic}");
    }
    let ask = Ask { response_topic: Some("news/bob/x".into()), ..get() };
    assert_ne!(bob.put(&ask), Some(PubAckReason::NotAuthorized), "he may publish and listen there");
    assert_eq!(ann.command(&["GET", "private/ann/k"]), b"$1\r\nv\r\n", "as it was");
    assert_eq!(ann.command(&["SET", "private/ann/k", "w"]), b"+OK\r\n");
    assert!(ann.notification().payload.starts_with(b"*"), "and it watches as before");
    assert!(hears_nothing(&mut ann));
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_overhears_or_speaks_where_it_may_not() {
    let place = Place::start().await;
    let mut ann = place.client("ann", "ann");
    assert_eq!(ann.subscribe("news/ann/#"), GRANTED);
    assert_eq!(ann.publish("news/ann/retained", true, "x"), PubAckReason::Success);
    let mut bob = place.client("bob", "bob");
    for filter in [
        "#",
        "+/#",
        "clients/#",
        "clients/+/#",
        "+/ann/#",
        "clients/ann/#",
        "clients/ann/services/statestore/#",
        "clients/616E6E/#",
        "clients/bob",
        "$share/g/#",
        "$share/g/clients/ann/#",
        "$share/g/news/+/retained",
        "news/#",
        "news/+/retained",
        "news/ann/retained",
        "$SYS/#",
        REQUEST,
        "$share/g/statestore/#",
    ] {
        let answer = bob.subscribe(filter);
        // What is below its own topics, it may.
        assert_eq!(answer == GRANTED, filter == "clients/bob", "{filter}: {answer:?}");
    }
    for topic in [
        "news/ann/x",
        "news/x",
        "clients/ann/x",
        "clients/bob/x",
        "clients/616E6E/x",
        "elsewhere",
        "clients/statestore/v1/x/command/notify/x",
        &notification_topic("ann", Some(b"private/ann/k")),
        &response_topic("ann"),
    ] {
        for retain in [false, true] {
            assert_eq!(bob.publish(topic, retain, "x"), PubAckReason::NotAuthorized, "{topic}");
        }
    }
    assert_eq!(ann.message().topic, "news/ann/retained", "her own");
    assert!(hears_nothing(&mut ann) && hears_nothing(&mut bob));
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_connects_as_another_or_leaves_a_will_where_it_may_not() {
    let place = Place::start().await;
    let ann = place.client("ann", "ann");
    for (client_id, hello, expected) in [
        ("ann", login("bob"), ConnectReturnCode::ClientIdentifierNotValid),
        ("ann-2", login("bob"), ConnectReturnCode::ClientIdentifierNotValid),
        ("bobby", login("bob"), ConnectReturnCode::ClientIdentifierNotValid),
        ("station-1", login("bob"), ConnectReturnCode::ClientIdentifierNotValid),
        ("station-10", login("ann"), ConnectReturnCode::ClientIdentifierNotValid),
        ("$statestore", login("bob"), ConnectReturnCode::ClientIdentifierNotValid),
        ("bob", Hello::default(), ConnectReturnCode::BadUserNamePassword),
        (
            "bob",
            Hello { will: Some(("news/ann/x", "x")), ..login("bob") },
            ConnectReturnCode::NotAuthorized,
        ),
        (
            "bob",
            Hello { will: Some(("clients/ann/x", "x")), ..login("bob") },
            ConnectReturnCode::NotAuthorized,
        ),
    ] {
        let refused = place.open(client_id, hello).expect_err(client_id);
        assert_eq!(refused, Some(expected), "{client_id} {hello:?}");
    }
    // A will asks the store in nobody's name.
    let request = "*3\r\n$3\r\nDEL\r\n$13\r\nprivate/ann/k\r\n";
    let hello = Hello { will: Some((REQUEST, request)), ..login("bob") };
    drop(place.open("bob", hello).expect("it may publish there"));
    drop(ann);
    let mut ann = place.client("ann", "ann");
    assert_eq!(ann.command(&["SET", "private/ann/k", "v"]), b"+OK\r\n");
    assert_eq!(ann.command(&["GET", "private/ann/k"]), b"$1\r\nv\r\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_may_less_is_disconnected_and_hears_nothing_more() {
    let place = Place::start().await;
    let mut ann = place.client("ann", "ann");
    let mut bob = place.client("bob", "bob");
    assert_eq!(bob.command(&["KEYNOTIFY", "shared/k"]), b"+OK\r\n");
    assert_eq!(place.broker.recheck(), 0);
    // Ann may do as before.
    place.policy.replace(policy(""));
    assert_eq!(place.broker.recheck(), 1);
    let told = bob.ended();
    assert_eq!(told, Some(statestore_tests::mqttbytes::v5::DisconnectReasonCode::NotAuthorized));
    let mut bob = place.client("bob", "bob");
    assert_eq!(bob.command(&["GET", "shared/k"]), REFUSED);
    assert_eq!(ann.command(&["SET", "shared/k", "v"]), b"+OK\r\n");
    assert_eq!(bob.command(&["GET", "private/bob/absent"]), b"$-1\r\n");
    assert!(bob.heard().is_empty());
    place.users.replace(users(&["bob"]));
    assert_eq!(place.broker.recheck(), 2, "ann is no user, and bob has another hash");
    ann.ended();
    assert_eq!(
        place.open("ann", login("ann")).expect_err("no user"),
        Some(ConnectReturnCode::BadUserNamePassword)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_process_itself_may_do_everything() {
    let place = Place::start().await;
    let local = StateStore::builder().spawn(place.broker.link("local")).expect("a client id");
    local.set("private/ann/k", "v").await.expect("it may");
    assert!(local.get("private/ann/k").await.expect("it may").is_some());
    let without = statestore_embedded::serve(options().policy(policy(""))).await;
    let (broker, service) = without.expect("it listens");
    service.connected().await.expect("it connects");
    let nobody = Raw::try_open(broker.local_addr().port(), "ann", Hello::default());
    assert_eq!(nobody.expect_err("no user"), Some(ConnectReturnCode::NotAuthorized));
}
