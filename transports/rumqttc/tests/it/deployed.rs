//! Clients with the wire format of the deployed SDKs.

use statestore_rumqttc::serve;
use statestore_testkit::brokers::Mosquitto;
use statestore_testkit::process::timely;
use statestore_testkit::wire::deployed;

#[tokio::test(flavor = "multi_thread")]
async fn deployed_clients_receive_valid_responses() {
    let Some(broker) = Mosquitto::start("deployed_clients_receive_valid_responses") else {
        return;
    };
    timely(async {
        let service = serve(broker.options("statestore"));
        service.wait_connected().await.expect("the store connects");
        deployed::deployed_clients_accept_the_replies(broker.port());
        service.shutdown().await;
    })
    .await;
}
