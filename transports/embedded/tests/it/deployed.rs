//! The deployed clients.

use statestore_tests::deployed;
use statestore_tests::timely::timely;

use crate::{options, start};

#[tokio::test(flavor = "multi_thread")]
async fn deployed_clients_are_answered_as_they_demand() {
    timely(async {
        let (broker, _service) = start(options()).await;
        deployed::clients_are_answered(broker.local_addr().port());
    })
    .await;
}
