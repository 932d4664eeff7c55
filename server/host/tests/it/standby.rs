//! Failover: a client with the addresses of several brokers.

use statestore_client::{ClientLink, StateStore, Status};
use statestore_server::{Broker, Redirect};
use statestore_testkit::process::timely;

use crate::{at, options, start};

/// Makes one broker the leader and redirects the clients of the others.
fn lead(brokers: &[Broker; 3], leader: usize) {
    // The new leader first, so that a fast client always finds a leader.
    brokers[leader].redirect(Redirect::None);
    for (index, broker) in brokers.iter().enumerate().filter(|(index, _)| *index != leader) {
        broker.redirect(match index {
            0 => Redirect::UnknownServer,
            _ => Redirect::Server("stranger.example:1883"),
        });
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn client_follows_the_leader_on_failover() {
    timely(async {
        let [(a, _a), (b, _b), (c, _c)] =
            [start(options()).await, start(options()).await, start(options()).await];
        let brokers = [a, b, c];
        lead(&brokers, 2);
        let ports = brokers.each_ref().map(|broker| broker.local_addr().port());
        let to_all = at(&brokers[0], "client").add_address("127.0.0.1", ports[1]);
        let link = ClientLink::for_client(to_all.add_address("127.0.0.1", ports[2]));
        let in_use = link.in_use();
        let store = StateStore::builder().spawn(link).expect("a client id");
        let mut status = store.status();
        for leader in [2, 0, 1, 0, 2] {
            lead(&brokers, leader);
            let port = || in_use.address().map(|address| address.port);
            while port() != Some(ports[leader]) || status.current() != Status::Online {
                status.changed().await.expect("client is running");
            }
            store.set("leader", leader.to_string()).await.expect("set");
            // The other brokers do not have the value.
            let found = super::client(&brokers[leader], "other").await.get("leader").await;
            let found = found.expect("an answer").expect("a value");
            assert_eq!(found.value, leader.to_string());
        }
    })
    .await;
}
