//! The deployed clients.

use statestore_rumqttc::serve;
use statestore_tests::deployed;
use statestore_tests::mosquitto::Mosquitto;
use statestore_tests::timely::timely;

#[tokio::test(flavor = "multi_thread")]
async fn deployed_clients_are_answered_as_they_demand() {
    let Some(broker) = Mosquitto::start("deployed_clients_are_answered_as_they_demand") else {
        return;
    };
    timely(async {
        let service = serve(broker.options("statestore"));
        service.connected().await.expect("the store connects");
        deployed::clients_are_answered(broker.port());
        service.shutdown().await;
    })
    .await;
}
