//! TLS of every link over an MQTT broker, against mosquitto with certificates made for the test.

use std::path::Path;
use std::time::Duration;

use statestore_tokio::{Options, StateStore, StoreService, Tls};

use crate::brokers::Mosquitto;
use crate::credentials::Certificates;
use crate::links::suite::Adapter;
use crate::process::timely;

const SHORT: Duration = Duration::from_millis(500);

fn connect<A: Adapter>(options: Options) -> StateStore {
    StateStore::builder().spawn(A::client(options)).expect("a client id")
}

/// A client with an encrypted key and its password connects; with another password it does not.
///
/// # Panics
/// If a connection is made that must fail, or fails that must be made.
pub async fn encrypted_key_needs_its_password<A: Adapter>(test: &str) {
    let Some(made) = Certificates::make(test) else { return };
    let Some(broker) = Mosquitto::start_with(test, &made.broker_lines()) else { return };
    timely(async {
        let tls = Tls::default().ca_file(made.path("ca.pem"));
        let (chain, key) = (made.path("client.pem"), made.path("client.encrypted.key"));
        let with_key = |password: &str| {
            tls.clone().identity(&chain, &key).key_password_file(made.path(password))
        };
        let options = |id: &str| Options::new(id, "localhost", broker.port());
        let plain = tls.clone().identity(&chain, made.path("client.key"));
        let _service = StoreService::builder().spawn(A::store(options("statestore").tls(plain)));
        for (id, encryption) in
            [("c1", "-v2 aes-256-cbc -v2prf hmacWithSHA256"), ("c2", "-v2 aes-128-cbc -scrypt")]
        {
            made.encrypt_key("client", encryption);
            let store = connect::<A>(options(id).tls(with_key("client.password")));
            // The store may still be connecting.
            while store.set("k", id).timeout(Duration::from_secs(1)).await.is_err() {}
        }
        for (id, password) in [("c3", "names"), ("c4", "no-such-file")] {
            let refused = connect::<A>(options(id).tls(with_key(password)));
            assert!(refused.get("k").timeout(SHORT).await.is_err(), "password file {password}");
        }
    })
    .await;
}

/// Client and broker verify each other's certificate, and the host must be the address in use.
///
/// # Panics
/// If a peer is accepted that must not be, or refused that must be accepted.
pub async fn peers_verify_their_certificates<A: Adapter>(test: &str) {
    let Some(made) = Certificates::make(test) else { return };
    let Some(broker) = Mosquitto::start_with(test, &made.broker_lines()) else { return };
    timely(async {
        let (chain, key) = (made.path("client.pem"), made.path("client.key"));
        let trusting = |file: &Path| Tls::default().ca_file(file);
        let known = trusting(&made.path("ca.pem")).identity(&chain, &key);
        let at = |id: &str, host: &str| Options::new(id, host, broker.port());
        let store = at("statestore", "localhost").tls(known.clone());
        let _service = StoreService::builder().spawn(A::store(store));
        let store = connect::<A>(at("c1", "localhost").tls(known.clone()));
        while store.set("k", "v").timeout(Duration::from_secs(1)).await.is_err() {}
        assert!(store.get("k").await.expect("a response").is_some());

        let second = at("c2", "127.0.0.1").tls(known.clone());
        let found = connect::<A>(second.add_address("localhost", broker.port()));
        assert!(found.get("k").await.expect("a response").is_some());
        let gone = Options::new("c3", "localhost", 1).tls(known.clone());

        let own = |file: &Path| trusting(file).identity(&chain, &key);
        for (case, options) in [
            ("another name", gone.add_address("127.0.0.1", broker.port())),
            ("no client certificate", at("c4", "localhost").tls(trusting(&made.path("ca.pem")))),
            ("another CA", at("c5", "localhost").tls(own(&made.path("broker.pem")))),
            ("system CAs", at("c6", "localhost").tls(Tls::default().identity(&chain, &key))),
            ("a missing CA file", at("c7", "localhost").tls(own(Path::new("/nonexistent")))),
        ] {
            let refused = connect::<A>(options);
            assert!(refused.get("k").timeout(SHORT).await.is_err(), "{case}");
        }
    })
    .await;
}
