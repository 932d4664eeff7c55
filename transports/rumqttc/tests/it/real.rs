//! Against mosquitto.

use statestore_rumqttc::{connect, serve};

use crate::mosquitto::Mosquitto;
use crate::timely;

#[tokio::test]
async fn values_come_back() {
    let Some(broker) = Mosquitto::start("values_come_back") else { return };
    timely(async {
        let service = serve(broker.options("statestore"));
        service.connected().await.expect("a connection");
        let store = connect(broker.options("c1")).expect("a client id");
        let version = store.set("k", "v").await.expect("a version");
        let found = store.get("k").await.expect("an answer").expect("a value");
        assert_eq!((&found.value[..], found.version), (&b"v"[..], Some(version)));
        store.shutdown().await;
        service.shutdown().await;
    })
    .await;
}
