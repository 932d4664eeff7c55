//! Service accounts that come in by their tokens, tried with raw packets.

use std::io::{Read, Write};
use std::net::TcpStream;

use bytes::BytesMut;
use statestore_embedded::policy::Policy;
use statestore_embedded::{ServiceAccountKeys, ServiceAccounts, Users};
use statestore_mqtt::Reason;
use statestore_mqtt::packet::{Connect, Header, Notice, Packet};
use statestore_mqtt::property::Property;
use statestore_tests::timely::HANGS;
use statestore_tests::tokens::{AUDIENCE, Claims, ISSUER, Issuer, key_set};

use super::*;

/// A connection that says what it likes.
struct Wire(TcpStream);

/// What came: the kind of packet, its reason, and the method that it names.
type Told = Option<(&'static str, Reason, Option<String>)>;

const METHOD: &str = "K8S-SAT";

impl Wire {
    fn open(broker: &Broker) -> Self {
        let stream = TcpStream::connect(broker.local_addr()).expect("a connection");
        stream.set_read_timeout(Some(HANGS)).expect("a socket");
        Self(stream)
    }

    fn send(&mut self, packet: &Packet<'_, &[Property<'_>]>) {
        let mut bytes = BytesMut::new();
        packet.encode(&mut bytes).expect("a packet");
        // It may have been closed for what came before.
        let _ = self.0.write_all(&bytes);
    }

    fn connect(&mut self, client_id: &str, user_name: Option<&str>, properties: &[Property<'_>]) {
        self.send(&Packet::Connect(Connect {
            clean_start: true,
            keep_alive: 0,
            properties,
            client_id,
            will: None,
            user_name,
            password: user_name.map(|_| &b"secret"[..]),
        }));
    }

    fn prove(&mut self, reason: Reason, method: &str, token: &[u8]) -> Told {
        let properties =
            [Property::AuthenticationMethod(method), Property::AuthenticationData(token)];
        self.send(&Packet::Auth(Notice { reason, properties: &properties }));
        self.told()
    }

    /// The next packet; `None` when there is none any more.
    fn told(&mut self) -> Told {
        let mut bytes = Vec::new();
        loop {
            if let Some(header) = Header::read(&bytes, usize::MAX).expect("a packet")
                && bytes.len() >= header.len
            {
                break;
            }
            let mut next = [0];
            match self.0.read(&mut next) {
                Ok(1) => bytes.push(next[0]),
                _ => return None,
            }
        }
        let (kind, reason, properties) = match Packet::decode(&bytes).expect("a packet") {
            Packet::ConnAck(told) => ("CONNACK", told.reason, told.properties),
            Packet::Auth(told) => ("AUTH", told.reason, told.properties),
            Packet::Disconnect(told) => ("DISCONNECT", told.reason, told.properties),
            other => panic!("{other:?}"),
        };
        let method = properties.iter().find_map(|property| match property {
            Property::AuthenticationMethod(method) => Some(method.to_owned()),
            _ => None,
        });
        Some((kind, reason, method))
    }
}

/// A connection that has offered a token, and what it was told.
fn offer(broker: &Broker, client_id: &str, token: &[u8]) -> (Wire, Told) {
    let mut wire = Wire::open(broker);
    let properties = [Property::AuthenticationMethod(METHOD), Property::AuthenticationData(token)];
    wire.connect(client_id, None, &properties);
    let told = wire.told();
    (wire, told)
}

fn refused(reason: Reason) -> Told {
    Some(("CONNACK", reason, None))
}

fn welcome() -> Told {
    Some(("CONNACK", Reason::SUCCESS, Some(METHOD.to_owned())))
}

fn disconnected(reason: Reason) -> Told {
    Some(("DISCONNECT", reason, None))
}

const DOOR: &str = "home.door";

const USER: &str = "system:serviceaccount:home:door";

fn accounts(issuer: &Issuer) -> ServiceAccounts {
    let keys = ServiceAccountKeys::parse(&key_set(&[issuer])).expect("keys");
    ServiceAccounts::new(keys, ISSUER, [AUDIENCE])
}

#[tokio::test(flavor = "multi_thread")]
async fn only_accounts_with_good_tokens_connect() {
    let (issuer, other) = (Issuer::p256("k"), Issuer::p256("k"));
    let mut users = Users::default();
    users.set("ann", "secret").expect("a user");
    users.set("home.door-bell", "secret").expect("a user");
    users.set("home.lamp", "secret").expect("a user");
    let options = options().service_accounts(accounts(&issuer)).users(users);
    let (broker, _service) = start(options).await;
    let good = Claims::of("home", "door");
    let token = issuer.token(&good);
    for (client_id, expected) in [
        (DOOR, welcome()),
        ("home.door_1", welcome()),
        // That may be another account's, whose name nobody knows here.
        ("home.door-1", refused(Reason::CLIENT_IDENTIFIER_NOT_VALID)),
        ("home.door.1", refused(Reason::CLIENT_IDENTIFIER_NOT_VALID)),
        ("", welcome()),
        ("door", refused(Reason::CLIENT_IDENTIFIER_NOT_VALID)),
        ("home.doorbell", refused(Reason::CLIENT_IDENTIFIER_NOT_VALID)),
        (USER, refused(Reason::CLIENT_IDENTIFIER_NOT_VALID)),
        // There is a user of that name.
        ("home.door-bell", refused(Reason::CLIENT_IDENTIFIER_NOT_VALID)),
        ("home.door-bell-1", refused(Reason::CLIENT_IDENTIFIER_NOT_VALID)),
    ] {
        assert_eq!(offer(&broker, client_id, token.as_bytes()).1, expected, "{client_id}");
    }
    // Nor is anything its own whose name a user has.
    let (_, told) =
        offer(&broker, "home.lamp", issuer.token(&Claims::of("home", "lamp")).as_bytes());
    assert_eq!(told, refused(Reason::CLIENT_IDENTIFIER_NOT_VALID));
    let long = [b'x'; 60 << 10];
    for bad in [
        issuer.token(&Claims { expires: 1, ..good.clone() }).as_bytes(),
        issuer.token(&Claims { audience: "\"api\"".into(), ..good.clone() }).as_bytes(),
        issuer.token(&Claims { issuer: "x".into(), ..good.clone() }).as_bytes(),
        issuer.token(&Claims { subject: "ann".into(), ..good.clone() }).as_bytes(),
        other.token(&good).as_bytes(),
        issuer.token_with(r#"{"alg":"none","kid":"k"}"#, &good).as_bytes(),
        issuer.signed_with_public_key(&good).as_bytes(),
        &token.as_bytes()[..token.len() / 2],
        &long[..(16 << 10) + 1],
        b"\xff",
        b"",
    ] {
        assert_eq!(offer(&broker, DOOR, bad).1, refused(Reason::NOT_AUTHORIZED));
    }
    assert_eq!(offer(&broker, DOOR, &long).1, refused(Reason::PACKET_TOO_LARGE), "60 KiB");
    // A name that it says is the account's; a password is not looked at.
    let properties =
        [Property::AuthenticationMethod(METHOD), Property::AuthenticationData(token.as_bytes())];
    for (user, expected) in [(USER, welcome()), ("ann", refused(Reason::BAD_USER_NAME_OR_PASSWORD))]
    {
        let mut wire = Wire::open(&broker);
        wire.connect(DOOR, Some(user), &properties);
        assert_eq!(wire.told(), expected, "{user}");
    }
    for (method, user, expected) in [
        (Some("SCRAM-SHA-256"), None, refused(Reason::BAD_AUTHENTICATION_METHOD)),
        (None, None, refused(Reason::BAD_USER_NAME_OR_PASSWORD)),
        (None, Some("ann"), Some(("CONNACK", Reason::SUCCESS, None))),
    ] {
        let mut wire = Wire::open(&broker);
        let properties: Vec<_> = method.map(Property::AuthenticationMethod).into_iter().collect();
        wire.connect(user.unwrap_or(DOOR), user, &properties);
        assert_eq!(wire.told(), expected, "{method:?} {user:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_proves_itself_again_stays_who_it_is() {
    let issuer = Issuer::p256("k");
    let (broker, _service) = start(options().service_accounts(accounts(&issuer))).await;
    let token = |name: &str| issuer.token(&Claims::of("home", name));
    let (mut door, told) = offer(&broker, DOOR, token("door").as_bytes());
    assert_eq!(told, welcome());
    let again = Reason::RE_AUTHENTICATE;
    for _ in 0..2 {
        let told = door.prove(again, METHOD, token("door").as_bytes());
        assert_eq!(told, Some(("AUTH", Reason::SUCCESS, Some(METHOD.to_owned()))));
    }
    let expired = issuer.token(&Claims { expires: 1, ..Claims::of("home", "door") });
    let (unproved, unasked) = (Reason::NOT_AUTHORIZED, Reason::PROTOCOL_ERROR);
    for (reason, method, token, expected) in [
        (again, METHOD, token("window"), unproved),
        (again, METHOD, expired, unproved),
        (again, METHOD, "x".into(), unproved),
        (again, "OTHER", token("door"), unasked),
        (Reason::CONTINUE_AUTHENTICATION, METHOD, token("door"), unasked),
    ] {
        let (mut wire, told) =
            offer(&broker, "", issuer.token(&Claims::of("home", "door")).as_bytes());
        assert_eq!(told, welcome());
        let told = wire.prove(reason, method, token.as_bytes());
        assert_eq!(told, disconnected(expected), "{reason} {method}");
        assert_eq!(wire.told(), None);
    }
    let mut early = Wire::open(&broker);
    assert_eq!(early.prove(again, METHOD, token("door").as_bytes()), None, "before a CONNECT");
}

#[tokio::test(flavor = "multi_thread")]
async fn whose_token_or_key_is_of_no_use_any_more_is_disconnected() {
    let (old, new) = (Issuer::p256("old"), Issuer::p256("new"));
    let accounts = accounts(&old);
    let (broker, _service) = start(options().service_accounts(accounts.clone())).await;
    let claims = Claims::of("home", "door");
    let (mut door, told) = offer(&broker, DOOR, old.token(&claims).as_bytes());
    assert_eq!(told, welcome());
    // Clocks may differ by ten seconds, so one that expired nine seconds ago is good for another.
    let short = Claims { expires: claims.begins - 9, ..claims.clone() };
    let (mut brief, told) = offer(&broker, "", old.token(&short).as_bytes());
    assert_eq!((told, brief.told()), (welcome(), disconnected(Reason::NOT_AUTHORIZED)));
    let both = ServiceAccountKeys::parse(&key_set(&[&old, &new])).expect("keys");
    accounts.replace_keys(both);
    assert_eq!(broker.recheck(), 0);
    // Who has proved itself by the new key stays when the old one goes.
    let (mut other, _) = offer(&broker, "", old.token(&claims).as_bytes());
    let told = other.prove(Reason::RE_AUTHENTICATE, METHOD, new.token(&claims).as_bytes());
    assert_eq!(told, Some(("AUTH", Reason::SUCCESS, Some(METHOD.to_owned()))));
    accounts.replace_keys(ServiceAccountKeys::parse(&key_set(&[&new])).expect("keys"));
    assert_eq!(broker.recheck(), 1);
    assert_eq!(door.told(), disconnected(Reason::NOT_AUTHORIZED));
    let told = other.prove(Reason::RE_AUTHENTICATE, METHOD, new.token(&claims).as_bytes());
    assert_eq!(told.map(|(kind, ..)| kind), Some("AUTH"));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_account_has_the_attributes_of_its_token() {
    let issuer = Issuer::p256("k");
    let policy = Policy::parse(
        r#"
rules:
  - principals: {attributes: [{namespace: home, serviceAccount: door}]}
    brokerResources: [{method: Connect, clientIds: ["bell"]}]
  - principals: {usernames: ["system:serviceaccount:home:window"]}
    brokerResources: [{method: Connect}]
"#,
    );
    let options = options().service_accounts(accounts(&issuer)).policy(policy.expect("a policy"));
    let (broker, _service) = start(options).await;
    for (namespace, name, client_id, expected) in [
        ("home", "door", "bell", welcome()),
        ("away", "door", "bell", refused(Reason::NOT_AUTHORIZED)),
        ("home", "window", "home.window", welcome()),
        ("home", "window", "bell", refused(Reason::CLIENT_IDENTIFIER_NOT_VALID)),
    ] {
        let token = issuer.token(&Claims::of(namespace, name));
        let (_wire, told) = offer(&broker, client_id, token.as_bytes());
        assert_eq!(told, expected, "{namespace} {name}");
    }
}
