//! Logins with passwords and with TLS.

use std::time::Duration;

use statestore_client::{Tls, connect};
use statestore_proto::limits::StoreLimits;
use statestore_server::service::StoreConfig;
use statestore_server::{ServerTls, StoreService, TlsError, TlsPem, Users};
use statestore_testkit::credentials::Certificates;
use statestore_testkit::process::timely;
use statestore_testkit::wire::packets::Reason;
use statestore_testkit::wire::raw::{Hello, Raw, RawRequest, blob, response_topic, words};

use crate::{at, options, secured, start};

#[tokio::test(flavor = "multi_thread")]
async fn only_users_with_valid_passwords_connect() {
    timely(async {
        let mut users = Users::default();
        users.set("alice", "one").expect("a user");
        users.set("bob", "two").expect("a user");
        // Through the text of a password file.
        let users: Users = users.to_string().parse().expect("as it was written");
        let (broker, _service) = start(options().users(users)).await;
        let open = |id: &str, login: Option<(&str, &str)>| {
            Raw::try_open(broker.local_addr().port(), id, Hello { login, ..Hello::default() })
        };
        for (user, password) in [("alice", "two"), ("alice", ""), ("carol", "one"), ("", "")] {
            let refused = open("c", Some((user, password))).expect_err(user);
            assert_eq!(refused, Some(Reason::BAD_USER_NAME_OR_PASSWORD), "{user}");
        }
        assert!(open("c", None).is_err(), "no user name");
        assert_eq!(broker.stats().refused_logins, 5);
        for (user, password) in [("alice", "one"), ("bob", "two")] {
            let mut raw = open(user, Some((user, password))).expect("a connection");
            raw.subscribe(&response_topic(user));
            assert_eq!(raw.command(&["GET", "k"]), b"$-1\r\n");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn client_ids_of_one_user_share_its_quota() {
    timely(async {
        let mut users = Users::default();
        users.set("ann", "one").expect("a user");
        users.set("bob", "two").expect("a user");
        let limits = StoreLimits { keys_max: 4, ..StoreLimits::default() };
        let config = StoreConfig::new(7).limits(limits);
        let service = StoreService::builder().config(config).expect("a memory store");
        let served = statestore_server::serve_with(options().users(users), service).await;
        let (broker, service) = served.expect("serve");
        service.wait_connected().await.expect("the store connects");
        let set = |client_id: &str, login, key: &str| {
            let hello = Hello { login: Some(login), ..Hello::default() };
            let mut raw = Raw::open(broker.local_addr().port(), client_id, hello);
            raw.subscribe(&response_topic(client_id));
            raw.command(&["SET", key, "v"])
        };
        let (ann, bob) = (("ann", "one"), ("bob", "two"));
        assert_eq!(set("ann-1", ann, "1"), b"+OK\r\n");
        assert_eq!(set("ann-2", ann, "2"), b"+OK\r\n");
        assert_eq!(set("ann-3", ann, "3"), b"-ERR the quota has been exceeded\r\n");
        assert_eq!(set("bob-1", bob, "3"), b"+OK\r\n");
    })
    .await;
}

/// The client is disconnected while another user sends more requests than the store caches, with
/// several client ids.
#[tokio::test(flavor = "multi_thread")]
async fn requests_of_one_user_make_no_redelivered_request_of_another_execute_again() {
    timely(async {
        let mut users = Users::default();
        users.set("ann", "one").expect("a user");
        users.set("bob", "two").expect("a user");
        let limits = StoreLimits { dedup_entries_max: 64, ..StoreLimits::default() };
        let service = StoreService::builder().config(StoreConfig::new(7).limits(limits));
        let service = service.expect("a memory store");
        let served = statestore_server::serve_with(options().users(users), service).await;
        let (broker, service) = served.expect("serve");
        service.wait_connected().await.expect("the store connects");
        let open = |client_id: &str, login| {
            let hello = Hello { login: Some(login), ..Hello::default() };
            let mut raw = Raw::open(broker.local_addr().port(), client_id, hello);
            raw.subscribe(&response_topic(client_id));
            raw
        };
        let (ann, bob) = (("ann", "one"), ("bob", "two"));
        let requests = [&["SET", "k", "old", "NX"][..], &["DEL", "k"]];
        let requests = requests.map(|request| RawRequest::deployed("ann-1", words(request)));
        let mut first = open("ann-1", ann);
        let responses = [&b"+OK\r\n"[..], b":1\r\n"];
        for (request, response) in requests.iter().zip(responses) {
            assert_eq!(first.answer(request), response);
        }
        drop(first);
        assert_eq!(open("ann-2", ann).command(&["SET", "k", "new"]), b"+OK\r\n");
        for client_id in ["bob-1", "bob-2", "bob-3"] {
            let mut bob = open(client_id, bob);
            for _ in 0..100 {
                assert_eq!(bob.command(&["DEL", "nothing"]), b":0\r\n");
            }
        }
        let mut again = open("ann-1", ann);
        for (request, response) in requests.iter().zip(responses) {
            assert_eq!(again.answer(request), response);
        }
        assert_eq!(again.command(&["GET", "k"]), blob(b"new"));
    })
    .await;
}

#[tokio::test]
async fn broker_and_clients_authenticate_by_certificate() {
    let Some(made) = Certificates::make("broker_and_clients_authenticate_by_certificate") else {
        return;
    };
    let authority = made.read("ca.pem");
    let (chain, key) = (made.read("broker.pem"), made.read("broker.key"));
    let config = |chain: &[u8], key: &[u8]| {
        ServerTls::from_pem(&TlsPem::new(chain, key).client_ca(&*authority))
    };
    let foreign = config(&chain, &made.read("client.key")).expect_err("another certificate");
    assert!(matches!(foreign, TlsError::KeyMismatch), "{foreign}");
    assert!(config(b"", &key).is_err() && config(&chain, b"").is_err());
    let config = config(&chain, &key).expect("valid files");
    timely(async {
        let (broker, _service) = start(secured(config)).await;
        // A silent connection does not delay others.
        let silent = tokio::net::TcpStream::connect(broker.local_addr()).await.expect("connect");
        let port = broker.local_addr().port();
        let options = |id: &str| statestore_client::Options::new(id, "localhost", port);
        let anonymous = Tls::default().ca_file(made.path("ca.pem"));
        let known = anonymous.clone().identity(made.path("client.pem"), made.path("client.key"));
        let store = connect(options("c1").tls(known)).expect("a client id");
        store.set("k", "v").await.expect("a version");
        assert!(store.get("k").await.expect("an answer").is_some());

        for stranger in [options("c2").tls(anonymous), at(&broker, "c3")] {
            let stranger = connect(stranger).expect("a client id");
            let short = Duration::from_millis(300);
            assert!(stranger.get("k").timeout(short).await.is_err());
        }
        drop(silent);
    })
    .await;
}
