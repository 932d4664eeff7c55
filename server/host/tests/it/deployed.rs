//! Deployed clients.

use statestore_testkit::process::timely;
use statestore_testkit::wire::deployed;

use crate::{options, start};

#[tokio::test(flavor = "multi_thread")]
async fn deployed_clients_get_the_responses_they_expect() {
    timely(async {
        let (broker, _service) = start(options()).await;
        deployed::deployed_clients_accept_the_replies(broker.local_addr().port());
    })
    .await;
}
