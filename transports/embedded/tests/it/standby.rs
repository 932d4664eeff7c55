//! Brokers that stand by for one another, and clients that know the address of each.

use statestore_embedded::{Broker, Referral};
use statestore_rumqttc::{RumqttcLink, StateStore, Status};
use statestore_tests::timely::timely;

use crate::{at, options, start};

/// From now on this one of them serves.
fn lead(brokers: &[Broker; 3], leader: usize) {
    // The new one first, or a client that is quick finds nobody.
    brokers[leader].refer(Referral::Here);
    for (index, broker) in brokers.iter().enumerate().filter(|(index, _)| *index != leader) {
        broker.refer(match index {
            0 => Referral::Elsewhere,
            _ => Referral::Server("stranger.example:1883"),
        });
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_finds_whichever_broker_leads() {
    timely(async {
        let [(a, _a), (b, _b), (c, _c)] =
            [start(options()).await, start(options()).await, start(options()).await];
        let brokers = [a, b, c];
        lead(&brokers, 2);
        let ports = brokers.each_ref().map(|broker| broker.local_addr().port());
        let to_all = at(&brokers[0], "client").or_at("127.0.0.1", ports[1]);
        let link = RumqttcLink::for_client(to_all.or_at("127.0.0.1", ports[2]));
        let in_use = link.in_use();
        let store = StateStore::builder().spawn(link).expect("a client id");
        let mut status = store.status();
        for leader in [2, 0, 1, 0, 2] {
            lead(&brokers, leader);
            let port = || in_use.address().map(|address| address.port);
            while port() != Some(ports[leader]) || status.current() != Status::Online {
                status.changed().await.expect("it goes on");
            }
            store.set("leader", leader.to_string()).await.expect("it answers");
            // Nobody else has it.
            let found = super::client(&brokers[leader], "other").await.get("leader").await;
            let found = found.expect("an answer").expect("a value");
            assert_eq!(found.value, leader.to_string());
        }
    })
    .await;
}
