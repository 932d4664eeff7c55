//! Two users with a policy that separates them. One of them tries to bypass it with raw packets.

use statestore_proto::topic::REQUEST;
use statestore_server::policy::Policy;
use statestore_server::{SharedPolicy, SharedUsers, Users};
use statestore_testkit::wire::packets::Reason;
use statestore_testkit::wire::raw::{RawRequest, notification_topic, words};

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

/// A broker with the users ann and bob, and a policy with private keys and shared keys.
struct World {
    broker: Broker,
    _service: StoreService,
    policy: SharedPolicy,
    users: SharedUsers,
}

impl World {
    async fn start() -> Self {
        let (policy, users) = (policy(BOBS_RULES).into(), users(&["ann", "bob"]).into());
        let options = options().policy(SharedPolicy::clone(&policy));
        let (broker, service) = start(options.users(SharedUsers::clone(&users))).await;
        Self { broker, _service: service, policy, users }
    }

    fn open(&self, client_id: &str, hello: Hello<'_>) -> Result<Raw, Option<Reason>> {
        Raw::try_open(self.broker.local_addr().port(), client_id, hello)
    }

    fn client(&self, client_id: &str, user: &'static str) -> Raw {
        let mut raw = self.open(client_id, login(user)).expect("a connection");
        assert_eq!(raw.subscribe(&response_topic(client_id)), GRANTED);
        assert_eq!(raw.subscribe(&notification_topic(client_id, None)), GRANTED);
        raw
    }
}

const GRANTED: Reason = Reason::GRANTED_QOS_1;

/// Returns whether no unexpected message arrived before the response to one more request.
fn has_received_nothing(raw: &mut Raw) -> bool {
    assert_eq!(raw.command(&["GET", "shared/absent"]).get(..1), Some(&b"$"[..]));
    raw.take_messages().is_empty()
}

const REFUSED: &[u8] = b"-ERR not authorized\r\n";

#[tokio::test(flavor = "multi_thread")]
async fn users_can_do_what_the_policy_allows() {
    let world = World::start().await;
    let mut ann = world.client("ann-1", "ann");
    assert_eq!(ann.command(&["SET", "private/ann/k", "v"]), b"+OK\r\n");
    assert_eq!(ann.command(&["GET", "private/ann/k"]), b"$1\r\nv\r\n");
    assert_eq!(ann.command(&["KEYNOTIFY", "shared/k"]), b"+OK\r\n");
    assert_eq!(ann.command(&["SET", "shared/k", "v"]), b"+OK\r\n");
    assert!(ann.notification().payload.starts_with(b"*"));
    let mut bob = world.client("bob", "bob");
    assert_eq!(bob.command(&["GET", "shared/k"]), b"$1\r\nv\r\n");
    assert_eq!(bob.command(&["SET", "private/bob/k", "v"]), b"+OK\r\n");
    let listed = bob.command(&["SCAN", "**"]);
    let listed = String::from_utf8(listed).expect("text");
    assert!(listed.contains("private/bob/k") && listed.contains("shared/k"), "{listed}");
    assert!(!listed.contains("ann"), "{listed}");
    let mut station = world.client("station-1", "ann");
    assert_eq!(station.command(&["VDEL", "private/ann/k", "v"]), b":1\r\n");
    assert_eq!(bob.subscribe("news/bob/+"), GRANTED);
    assert_eq!(bob.publish("news/bob/x", false, "x"), Reason::SUCCESS);
    assert_eq!(bob.message().topic, "news/bob/x");
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_of_another_user_are_inaccessible() {
    let world = World::start().await;
    let mut ann = world.client("ann", "ann");
    assert_eq!(ann.command(&["SET", "private/ann/k", "v"]), b"+OK\r\n");
    assert_eq!(ann.command(&["SET", "shared/k", "v"]), b"+OK\r\n");
    assert_eq!(ann.command(&["KEYNOTIFY", "private/ann/k"]), b"+OK\r\n");
    let mut bob = world.client("bob", "bob");
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
    // A forged source, which contradicts the sender that the broker has verified.
    let get = || RawRequest::deployed("bob", words(&["GET", "private/ann/k"]));
    let claim = get().replacing("__srcId", "ann");
    assert_eq!(bob.answer(&claim), REFUSED);
    // Response topics where another user could receive the response, or where bob may not publish.
    assert_eq!(bob.subscribe("alarms/#"), GRANTED);
    let hex = "clients/616E6E/x";
    for topic in ["clients/ann/x", hex, "news/ann/x", "news/x", "x", "alarms/fire", REQUEST] {
        let ask = RawRequest { response_topic: Some(topic.into()), ..get() };
        assert_eq!(bob.put(&ask), Some(Reason::NOT_AUTHORIZED), "{topic}");
    }
    let ask = RawRequest { response_topic: Some("news/bob/x".into()), ..get() };
    assert_ne!(bob.put(&ask), Some(Reason::NOT_AUTHORIZED), "bob may publish and subscribe there");
    assert_eq!(ann.command(&["GET", "private/ann/k"]), b"$1\r\nv\r\n", "unchanged");
    assert_eq!(ann.command(&["SET", "private/ann/k", "w"]), b"+OK\r\n");
    assert!(ann.notification().payload.starts_with(b"*"), "the registration is still active");
    assert!(has_received_nothing(&mut ann));
}

#[tokio::test(flavor = "multi_thread")]
async fn unauthorized_subscriptions_and_publishes_are_rejected() {
    let world = World::start().await;
    let mut ann = world.client("ann", "ann");
    assert_eq!(ann.subscribe("news/ann/#"), GRANTED);
    assert_eq!(ann.publish("news/ann/retained", true, "x"), Reason::SUCCESS);
    let mut bob = world.client("bob", "bob");
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
        // Bob may subscribe to topics below his own client id.
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
            assert_eq!(bob.publish(topic, retain, "x"), Reason::NOT_AUTHORIZED, "{topic}");
        }
    }
    assert_eq!(ann.message().topic, "news/ann/retained", "ann's own message");
    assert!(has_received_nothing(&mut ann) && has_received_nothing(&mut bob));
}

#[tokio::test(flavor = "multi_thread")]
async fn client_ids_of_others_and_unauthorized_wills_are_rejected() {
    let world = World::start().await;
    let ann = world.client("ann", "ann");
    for (client_id, hello, expected) in [
        ("ann", login("bob"), Reason::CLIENT_IDENTIFIER_NOT_VALID),
        ("ann-2", login("bob"), Reason::CLIENT_IDENTIFIER_NOT_VALID),
        ("bobby", login("bob"), Reason::CLIENT_IDENTIFIER_NOT_VALID),
        ("station-1", login("bob"), Reason::CLIENT_IDENTIFIER_NOT_VALID),
        ("station-10", login("ann"), Reason::CLIENT_IDENTIFIER_NOT_VALID),
        ("$statestore", login("bob"), Reason::CLIENT_IDENTIFIER_NOT_VALID),
        ("bob", Hello::default(), Reason::BAD_USER_NAME_OR_PASSWORD),
        ("bob", Hello { will: Some(("news/ann/x", "x")), ..login("bob") }, Reason::NOT_AUTHORIZED),
        (
            "bob",
            Hello { will: Some(("clients/ann/x", "x")), ..login("bob") },
            Reason::NOT_AUTHORIZED,
        ),
    ] {
        let refused = world.open(client_id, hello).expect_err(client_id);
        assert_eq!(refused, Some(expected), "{client_id} {hello:?}");
    }
    // A will has no verified sender, so the store must not execute a request in it.
    let request = "*3\r\n$3\r\nDEL\r\n$13\r\nprivate/ann/k\r\n";
    let hello = Hello { will: Some((REQUEST, request)), ..login("bob") };
    drop(world.open("bob", hello).expect("publish is allowed"));
    drop(ann);
    let mut ann = world.client("ann", "ann");
    assert_eq!(ann.command(&["SET", "private/ann/k", "v"]), b"+OK\r\n");
    assert_eq!(ann.command(&["GET", "private/ann/k"]), b"$1\r\nv\r\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn recheck_disconnects_clients_with_changed_permissions() {
    let world = World::start().await;
    let mut ann = world.client("ann", "ann");
    let mut bob = world.client("bob", "bob");
    assert_eq!(bob.command(&["KEYNOTIFY", "shared/k"]), b"+OK\r\n");
    assert_eq!(world.broker.recheck(), 0);
    // The permissions of ann are unchanged.
    world.policy.replace(policy(""));
    assert_eq!(world.broker.recheck(), 1);
    assert_eq!(bob.ended(), Some(Reason::NOT_AUTHORIZED));
    let mut bob = world.client("bob", "bob");
    assert_eq!(bob.command(&["GET", "shared/k"]), REFUSED);
    assert_eq!(ann.command(&["SET", "shared/k", "v"]), b"+OK\r\n");
    assert_eq!(bob.command(&["GET", "private/bob/absent"]), b"$-1\r\n");
    assert!(bob.take_messages().is_empty());
    world.users.replace(users(&["bob"]));
    assert_eq!(world.broker.recheck(), 2, "ann was removed, and bob has another hash");
    ann.ended();
    assert_eq!(
        world.open("ann", login("ann")).expect_err("not a user"),
        Some(Reason::BAD_USER_NAME_OR_PASSWORD)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_in_the_process_are_unrestricted() {
    let world = World::start().await;
    let local = StateStore::builder().spawn(world.broker.link("local")).expect("a client id");
    local.set("private/ann/k", "v").await.expect("allowed");
    assert!(local.get("private/ann/k").await.expect("allowed").is_some());
    let without = statestore_server::serve(options().policy(policy(""))).await;
    let (broker, service) = without.expect("serve");
    service.wait_connected().await.expect("connect");
    let anonymous = Raw::try_open(broker.local_addr().port(), "ann", Hello::default());
    assert_eq!(anonymous.expect_err("not a user"), Some(Reason::NOT_AUTHORIZED));
}
