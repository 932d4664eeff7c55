//! Service accounts that log in with tokens, tested with raw packets.

use std::io::{Read, Write};
use std::net::TcpStream;

use bytes::BytesMut;
use statestore_mqtt::Reason;
use statestore_mqtt::packet::{Connect, Header, Notice, Packet};
use statestore_mqtt::property::Property;
use statestore_server::policy::Policy;
use statestore_server::{ServiceAccountKeys, ServiceAccounts, Users};
use statestore_testkit::credentials::tokens::{AUDIENCE, Claims, ISSUER, Issuer, key_set};
use statestore_testkit::process::HANGS;

use super::*;

/// A connection for arbitrary packets.
struct Wire(TcpStream);

/// The kind of a received packet, its reason and its authentication method.
type Received = Option<(&'static str, Reason, Option<String>)>;

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
        // The broker may have closed the connection because of an earlier packet.
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

    fn authenticate(&mut self, reason: Reason, method: &str, token: &[u8]) -> Received {
        let properties =
            [Property::AuthenticationMethod(method), Property::AuthenticationData(token)];
        self.send(&Packet::Auth(Notice { reason, properties: &properties }));
        self.receive()
    }

    /// Returns the next packet, or `None` at the end.
    fn receive(&mut self) -> Received {
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
            Packet::ConnAck(packet) => ("CONNACK", packet.reason, packet.properties),
            Packet::Auth(packet) => ("AUTH", packet.reason, packet.properties),
            Packet::Disconnect(packet) => ("DISCONNECT", packet.reason, packet.properties),
            other => panic!("{other:?}"),
        };
        let method = properties.iter().find_map(|property| match property {
            Property::AuthenticationMethod(method) => Some(method.to_owned()),
            _ => None,
        });
        Some((kind, reason, method))
    }
}

/// Connects with a token. Returns the connection and the response.
fn offer(broker: &Broker, client_id: &str, token: &[u8]) -> (Wire, Received) {
    let mut wire = Wire::open(broker);
    let properties = [Property::AuthenticationMethod(METHOD), Property::AuthenticationData(token)];
    wire.connect(client_id, None, &properties);
    let received = wire.receive();
    (wire, received)
}

fn rejected(reason: Reason) -> Received {
    Some(("CONNACK", reason, None))
}

fn accepted() -> Received {
    Some(("CONNACK", Reason::SUCCESS, Some(METHOD.to_owned())))
}

fn disconnected(reason: Reason) -> Received {
    Some(("DISCONNECT", reason, None))
}

const DOOR: &str = "home.door";

const USER: &str = "system:serviceaccount:home:door";

fn accounts(issuer: &Issuer) -> ServiceAccounts {
    let keys = ServiceAccountKeys::parse(&key_set(&[issuer])).expect("keys");
    ServiceAccounts::new(keys, ISSUER, [AUDIENCE])
}

#[tokio::test(flavor = "multi_thread")]
async fn only_accounts_with_valid_tokens_connect() {
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
        (DOOR, accepted()),
        ("home.door_1", accepted()),
        // This client id may belong to another account.
        ("home.door-1", rejected(Reason::CLIENT_IDENTIFIER_NOT_VALID)),
        ("home.door.1", rejected(Reason::CLIENT_IDENTIFIER_NOT_VALID)),
        ("", accepted()),
        ("door", rejected(Reason::CLIENT_IDENTIFIER_NOT_VALID)),
        ("home.doorbell", rejected(Reason::CLIENT_IDENTIFIER_NOT_VALID)),
        (USER, rejected(Reason::CLIENT_IDENTIFIER_NOT_VALID)),
        // The password file has a user of this name.
        ("home.door-bell", rejected(Reason::CLIENT_IDENTIFIER_NOT_VALID)),
        ("home.door-bell-1", rejected(Reason::CLIENT_IDENTIFIER_NOT_VALID)),
    ] {
        assert_eq!(offer(&broker, client_id, token.as_bytes()).1, expected, "{client_id}");
    }
    // The client id of an account is rejected if a user has that name.
    let (_, received) =
        offer(&broker, "home.lamp", issuer.token(&Claims::of("home", "lamp")).as_bytes());
    assert_eq!(received, rejected(Reason::CLIENT_IDENTIFIER_NOT_VALID));
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
        assert_eq!(offer(&broker, DOOR, bad).1, rejected(Reason::NOT_AUTHORIZED));
    }
    assert_eq!(offer(&broker, DOOR, &long).1, rejected(Reason::PACKET_TOO_LARGE), "60 KiB");
    // A user name must be that of the account. The password is ignored.
    let properties =
        [Property::AuthenticationMethod(METHOD), Property::AuthenticationData(token.as_bytes())];
    for (user, expected) in
        [(USER, accepted()), ("ann", rejected(Reason::BAD_USER_NAME_OR_PASSWORD))]
    {
        let mut wire = Wire::open(&broker);
        wire.connect(DOOR, Some(user), &properties);
        assert_eq!(wire.receive(), expected, "{user}");
    }
    for (method, user, expected) in [
        (Some("SCRAM-SHA-256"), None, rejected(Reason::BAD_AUTHENTICATION_METHOD)),
        (None, None, rejected(Reason::BAD_USER_NAME_OR_PASSWORD)),
        (None, Some("ann"), Some(("CONNACK", Reason::SUCCESS, None))),
    ] {
        let mut wire = Wire::open(&broker);
        let properties: Vec<_> = method.map(Property::AuthenticationMethod).into_iter().collect();
        wire.connect(user.unwrap_or(DOOR), user, &properties);
        assert_eq!(wire.receive(), expected, "{method:?} {user:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn reauthentication_requires_the_same_account() {
    let issuer = Issuer::p256("k");
    let (broker, _service) = start(options().service_accounts(accounts(&issuer))).await;
    let token = |name: &str| issuer.token(&Claims::of("home", name));
    let (mut door, received) = offer(&broker, DOOR, token("door").as_bytes());
    assert_eq!(received, accepted());
    let again = Reason::RE_AUTHENTICATE;
    for _ in 0..2 {
        let received = door.authenticate(again, METHOD, token("door").as_bytes());
        assert_eq!(received, Some(("AUTH", Reason::SUCCESS, Some(METHOD.to_owned()))));
    }
    let expired = issuer.token(&Claims { expires: 1, ..Claims::of("home", "door") });
    let (not_authorized, protocol_error) = (Reason::NOT_AUTHORIZED, Reason::PROTOCOL_ERROR);
    for (reason, method, token, expected) in [
        (again, METHOD, token("window"), not_authorized),
        (again, METHOD, expired, not_authorized),
        (again, METHOD, "x".into(), not_authorized),
        (again, "OTHER", token("door"), protocol_error),
        (Reason::CONTINUE_AUTHENTICATION, METHOD, token("door"), protocol_error),
    ] {
        let (mut wire, received) =
            offer(&broker, "", issuer.token(&Claims::of("home", "door")).as_bytes());
        assert_eq!(received, accepted());
        let received = wire.authenticate(reason, method, token.as_bytes());
        assert_eq!(received, disconnected(expected), "{reason} {method}");
        assert_eq!(wire.receive(), None);
    }
    let mut early = Wire::open(&broker);
    assert_eq!(
        early.authenticate(again, METHOD, token("door").as_bytes()),
        None,
        "AUTH before CONNECT"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn client_is_disconnected_when_token_expires_or_key_is_removed() {
    let (old, new) = (Issuer::p256("old"), Issuer::p256("new"));
    let accounts = accounts(&old);
    let (broker, _service) = start(options().service_accounts(accounts.clone())).await;
    let claims = Claims::of("home", "door");
    let (mut door, received) = offer(&broker, DOOR, old.token(&claims).as_bytes());
    assert_eq!(received, accepted());
    // With ten seconds of tolerance, a token that expired nine seconds ago is valid for another
    // second.
    let short = Claims { expires: claims.begins - 9, ..claims.clone() };
    let (mut brief, received) = offer(&broker, "", old.token(&short).as_bytes());
    assert_eq!((received, brief.receive()), (accepted(), disconnected(Reason::NOT_AUTHORIZED)));
    let both = ServiceAccountKeys::parse(&key_set(&[&old, &new])).expect("keys");
    accounts.replace_keys(both);
    assert_eq!(broker.recheck(), 0);
    // A client that reauthenticated with the new key stays connected when the old key is removed.
    let (mut other, _) = offer(&broker, "", old.token(&claims).as_bytes());
    let received =
        other.authenticate(Reason::RE_AUTHENTICATE, METHOD, new.token(&claims).as_bytes());
    assert_eq!(received, Some(("AUTH", Reason::SUCCESS, Some(METHOD.to_owned()))));
    accounts.replace_keys(ServiceAccountKeys::parse(&key_set(&[&new])).expect("keys"));
    assert_eq!(broker.recheck(), 1);
    assert_eq!(door.receive(), disconnected(Reason::NOT_AUTHORIZED));
    let received =
        other.authenticate(Reason::RE_AUTHENTICATE, METHOD, new.token(&claims).as_bytes());
    assert_eq!(received.map(|(kind, ..)| kind), Some("AUTH"));
}

#[tokio::test(flavor = "multi_thread")]
async fn account_attributes_come_from_the_token() {
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
        ("home", "door", "bell", accepted()),
        ("away", "door", "bell", rejected(Reason::NOT_AUTHORIZED)),
        ("home", "window", "home.window", accepted()),
        ("home", "window", "bell", rejected(Reason::CLIENT_IDENTIFIER_NOT_VALID)),
    ] {
        let token = issuer.token(&Claims::of(namespace, name));
        let (_wire, received) = offer(&broker, client_id, token.as_bytes());
        assert_eq!(received, expected, "{namespace} {name}");
    }
}
