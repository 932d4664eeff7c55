//! Requests without an answer, and requests that come too late.

use std::time::Duration;

use statestore_loopback::Hub;
use statestore_tokio::Error;

use crate::late::Late;
use crate::{client, service};

#[tokio::test(start_paused = true)]
async fn silence_from_the_start_has_other_causes_than_silence_later() {
    let broker = Hub::new();
    // It takes requests and says nothing for an hour.
    let mute = Late::new(broker.store_link("statestore"), Duration::from_secs(3_600));
    let mute = service(mute).await;
    let store = client(broker.link("c")).await;
    let silence = store.set("k", "v").await.expect_err("nobody answers");
    let Error::Unanswered { response_topic } = &silence else { panic!("{silence:?}") };
    assert_eq!(&**response_topic, "clients/c/services/statestore/_any_/command/invoke/response");
    assert!(silence.may_be_applied());
    let text = silence.to_string();
    assert!(text.contains("no store listens") && text.contains(&**response_topic), "{text}");
    mute.shutdown().await;

    let able = service(broker.store_link("statestore")).await;
    store.set("k", "v").await.expect("a version");
    able.shutdown().await;
    let mute = Late::new(broker.store_link("statestore"), Duration::from_secs(3_600));
    let _mute = service(mute).await;
    assert_eq!(store.get("k").await, Err(Error::TimedOut));
    // What was heard on another connection says nothing about this one.
    broker.disconnect("c");
    let mut silence = store.get("k").await;
    while silence == Err(Error::Unknown) {
        // It went out before the loss was noticed.
        silence = store.get("k").await;
    }
    assert!(matches!(silence, Err(Error::Unanswered { .. })), "{silence:?}");
}

#[tokio::test(start_paused = true)]
async fn a_request_that_waited_past_its_expiry_is_dropped() {
    let broker = Hub::new();
    let late = Late::new(broker.store_link("statestore"), Duration::from_millis(1_500));
    let service = service(late).await;
    let store = client(broker.link("c")).await;
    let hasty = store.set("hasty", "v").timeout(Duration::from_secs(1)).await;
    assert!(hasty.is_err());
    store.set("patient", "v").timeout(Duration::from_secs(2)).await.expect("it waited less");
    let stats = service.stats();
    assert_eq!((stats.keys, stats.counters.expired_requests), (1, 1));
    assert_eq!((stats.counters.executed(), stats.counters.dropped()), (1, 1));
}
