//! Requests for several keys at once.

use std::time::Duration;

use statestore_loopback::Hub;
use statestore_tokio::proto::message::RequestKind;
use statestore_tokio::{Error, SubmitError, Version};

use crate::late::Late;
use crate::{both, client, service};

#[tokio::test(start_paused = true)]
async fn results_are_in_the_order_of_the_keys() {
    let broker = Hub::new();
    let (_service, store) = both(&broker).await;
    let pairs: Vec<_> = (0..200).map(|key| (format!("k{key}"), format!("v{key}"))).collect();
    let versions: Result<Vec<Version>, _> = store.set_many(pairs).await.into_iter().collect();
    assert_eq!(versions.expect("each is set").len(), 200);

    let keys = (0..200).rev().map(|key| format!("k{key}"));
    for (key, found) in (0..200).rev().zip(store.get_many(keys).await) {
        let found = found.expect("a response").expect("the key was set");
        assert_eq!(found.value, format!("v{key}"));
    }
    let removed = store.delete_many(["k7", "absent", "k8"]).await;
    assert_eq!(removed, [Ok(true), Ok(false), Ok(true)]);
    let found = store.get_many(["k7", "k9"]).await;
    assert_eq!(found[0], Ok(None));
    assert!(matches!(found[1], Ok(Some(_))));
    assert!(store.get_many([""; 0]).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn failed_request_does_not_affect_the_others() {
    let broker = Hub::new();
    let (_service, store) = both(&broker).await;
    let results = store.set_many([("a", "1"), ("", "2"), ("c", "3")]).await;
    assert!(matches!(&results[..], [Ok(_), Err(Error::Invalid(SubmitError::EmptyKey)), Ok(_)]));
    assert_eq!(store.get("c").await.expect("a response").expect("it was set").value, "3");
}

#[tokio::test(start_paused = true)]
async fn limit_bounds_the_requests_without_a_response() {
    let broker = Hub::new();
    // Each response takes a second, so the number of seconds is the number of rounds.
    let late = Late::new(broker.store_link("statestore"), Duration::from_secs(1));
    let _service = service(late).await;
    let store = client(broker.link("c")).await;
    for (in_flight, rounds) in [(0, 6), (1, 6), (2, 3), (4, 2), (64, 1)] {
        let start = tokio::time::Instant::now();
        let results = store.get_many(["k"; 6]).in_flight(in_flight).await;
        assert_eq!(results, [const { Ok(None) }; 6]);
        assert_eq!(start.elapsed().as_secs(), rounds, "{in_flight} in flight");
    }
}

#[tokio::test(start_paused = true)]
async fn change_of_each_request_applies_to_all() {
    let broker = Hub::new();
    let (_service, store) = both(&broker).await;
    let set = store.set_many([("a", "1"), ("b", "2")]);
    let set = set.each(|set| set.expires_after(Duration::from_secs(10)));
    assert!(set.await.iter().all(Result::is_ok));
    tokio::time::sleep(Duration::from_secs(11)).await;
    assert_eq!(store.get_many(["a", "b"]).await, [Ok(None), Ok(None)]);
}

#[tokio::test(start_paused = true)]
async fn dropped_batch_cancels_what_was_not_sent() {
    let broker = Hub::new();
    let late = Late::new(broker.store_link("statestore"), Duration::from_secs(1));
    let _service = service(late).await;
    let store = client(broker.link("c")).await;
    let batch = store.set_many((0..10).map(|key| (format!("k{key}"), "v"))).in_flight(2);
    let limit = Duration::from_millis(2_500);
    assert!(tokio::time::timeout(limit, batch).await.is_err());
    tokio::time::sleep(Duration::from_secs(60)).await;
    let counters = store.stats().counters;
    assert_eq!(counters.of(RequestKind::Set).applied, 4, "two rounds have ended");
}
