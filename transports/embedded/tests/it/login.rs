//! Who may connect at all.

use std::time::Duration;

use statestore_embedded::{Users, tls_config};
use statestore_rumqttc::{Tls, connect};
use statestore_tests::certificates::Certificates;
use statestore_tests::mqttbytes::v5::ConnectReturnCode;
use statestore_tests::raw::{Hello, Raw, response_topic};
use statestore_tests::timely::timely;

use crate::{at, options, start};

#[tokio::test(flavor = "multi_thread")]
async fn only_users_with_their_passwords_connect() {
    timely(async {
        let mut users = Users::default();
        users.set("alice", "one").expect("a user");
        users.set("bob", "two").expect("a user");
        // By route of the file.
        let users: Users = users.to_string().parse().expect("as it was written");
        let (broker, _service) = start(options().users(users)).await;
        let open = |id: &str, login: Option<(&str, &str)>| {
            Raw::try_open(broker.local_addr().port(), id, Hello { login, ..Hello::default() })
        };
        for (user, password) in [("alice", "two"), ("alice", ""), ("carol", "one"), ("", "")] {
            let refused = open("c", Some((user, password))).expect_err(user);
            assert_eq!(refused, Some(ConnectReturnCode::BadUserNamePassword), "{user}");
        }
        assert!(open("c", None).is_err(), "nobody without a name");
        assert_eq!(broker.stats().refused_logins, 5);
        for (user, password) in [("alice", "one"), ("bob", "two")] {
            let mut raw = open(user, Some((user, password))).expect("a connection");
            raw.subscribe(&response_topic(user));
            assert_eq!(raw.command(&["GET", "k"]), b"$-1\r\n");
        }
    })
    .await;
}

#[tokio::test]
async fn both_sides_prove_who_they_are() {
    let Some(made) = Certificates::make("both_sides_prove_who_they_are") else { return };
    let authority = made.read("ca.pem");
    let (chain, key) = (made.read("broker.pem"), made.read("broker.key"));
    let config = tls_config(&chain, &key, Some(&authority)).expect("good files");
    assert!(tls_config(&chain, &made.read("client.key"), None).is_err(), "another one's key");
    assert!(tls_config(b"", &key, None).is_err() && tls_config(&chain, b"", None).is_err());
    timely(async {
        let (broker, _service) = start(options().tls(config)).await;
        // One that never says anything holds up nobody.
        let silent =
            tokio::net::TcpStream::connect(broker.local_addr()).await.expect("it connects");
        let port = broker.local_addr().port();
        let options = |id: &str| statestore_rumqttc::Options::new(id, "localhost", port);
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
