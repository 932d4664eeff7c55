//! The same over TLS, with certificates made for the test.

use std::time::Duration;

use statestore_paho::{Options, Tls, connect, serve};
use statestore_tests::certificates::Certificates;
use statestore_tests::mosquitto::Mosquitto;
use statestore_tests::timely::timely;

#[tokio::test]
async fn both_sides_prove_who_they_are() {
    let test = "both_sides_prove_who_they_are";
    let Some(made) = Certificates::make(test) else { return };
    let Some(broker) = Mosquitto::start_with(test, &made.broker_lines()) else { return };
    timely(async {
        let (chain, key) = (made.path("client.pem"), made.path("client.key"));
        let trusting = |file| Tls::default().ca_file(file);
        let known = trusting(made.path("ca.pem")).identity(&chain, &key);
        let options = |id: &str| Options::new(id, "localhost", broker.port());
        let _service = serve(options("statestore").tls(known.clone()));
        let store = connect(options("c1").tls(known.clone())).expect("a client id");
        while store.set("k", "v").timeout(Duration::from_secs(1)).await.is_err() {}
        assert!(store.get("k").await.expect("an answer").is_some());

        // The name that counts is that of the address in use, whichever comes first.
        let by_address = Options::new("c3", "127.0.0.1", broker.port()).tls(known.clone());
        let found = connect(by_address.or_at("localhost", broker.port())).expect("a client id");
        assert!(found.get("k").await.expect("an answer").is_some());
        let gone = Options::new("c4", "localhost", 1).tls(known.clone());
        let refused = connect(gone.or_at("127.0.0.1", broker.port())).expect("a client id");
        assert!(refused.get("k").timeout(Duration::from_millis(500)).await.is_err());

        let elsewhere = Options::new("c2", "127.0.0.1", broker.port());
        for stranger in [
            options("c2").tls(trusting(made.path("ca.pem"))),
            options("c2").tls(trusting(made.path("broker.pem")).identity(&chain, &key)),
            // Whom the machine trusts.
            options("c2").tls(Tls::default().identity(&chain, &key)),
            options("c2").tls(trusting("/nonexistent".into()).identity(&chain, &key)),
            elsewhere.tls(known),
        ] {
            let store = connect(stranger).expect("a client id");
            assert!(store.get("k").timeout(Duration::from_millis(500)).await.is_err());
        }
    })
    .await;
}
