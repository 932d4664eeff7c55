//! Watches of patterns: limits, costs and gaps.

use std::collections::BTreeMap;
use std::time::Duration;

use statestore_loopback::Hub;
use statestore_proto::message::{Refusal, RequestKind};
use statestore_tokio::{Error, PatternEnd, PatternEvent, PatternWatch, ServiceError};

use crate::both;

/// Longer than any step of these tests.
const SOON: Duration = Duration::from_secs(15);

async fn next(watch: &mut PatternWatch) -> PatternEvent {
    let event = tokio::time::timeout(SOON, watch.next()).await.expect("an event");
    event.expect("the watch continues")
}

/// The next event as text, a change as key and value.
async fn next_text(watch: &mut PatternWatch) -> String {
    match next(watch).await {
        PatternEvent::Changed { key, value: Some(value), .. } => {
            format!("{}={}", key.escape_ascii(), value.escape_ascii())
        }
        PatternEvent::Changed { key, .. } => format!("{} is gone", key.escape_ascii()),
        other => format!("{other:?}"),
    }
}

async fn is_silent(watch: &mut PatternWatch) -> bool {
    tokio::time::timeout(SOON, watch.next()).await.is_err()
}

#[tokio::test(start_paused = true)]
async fn each_key_is_registered_once_and_until_it_is_gone() {
    let broker = Hub::new();
    let (service, store) = both(&broker).await;
    for key in ["rooms/1", "rooms/2", "lamps/1"] {
        store.set(key, "v").await.expect("set");
    }
    let mut watch = store.watch_pattern("rooms/*");
    let mut first = [next_text(&mut watch).await, next_text(&mut watch).await];
    first.sort();
    assert_eq!(first, ["rooms/1=v", "rooms/2=v"]);
    assert_eq!(next_text(&mut watch).await, "Live");
    assert!(is_silent(&mut watch).await, "listings report nothing");
    let counters = service.stats().counters;
    assert_eq!(counters.of(RequestKind::Watch).applied, 2);
    assert_eq!(counters.of(RequestKind::Get).executed(), 2);
    assert_eq!(service.stats().registrations, 2);

    store.del("rooms/1").await.expect("del");
    assert_eq!(next_text(&mut watch).await, "rooms/1 is gone");
    assert!(is_silent(&mut watch).await);
    assert_eq!(service.stats().registrations, 1, "the listing ended the watch");
    store.set("rooms/1", "w").await.expect("set");
    assert_eq!(next_text(&mut watch).await, "rooms/1=w");
    drop(watch);
    tokio::time::sleep(SOON).await;
    store.get("k").await.expect("a response");
    assert_eq!(service.stats().registrations, 0, "dropping the stream ends all watches");
}

#[tokio::test(start_paused = true)]
async fn pattern_without_keys_is_live_and_reports_a_new_key_after_the_interval() {
    let broker = Hub::new();
    let (_service, store) = both(&broker).await;
    let interval = Duration::from_secs(3);
    let mut watch = store.watch_pattern("rooms/*").interval(interval);
    assert_eq!(next_text(&mut watch).await, "Live");
    let since = tokio::time::Instant::now();
    store.set("rooms/1", "1").await.expect("set");
    assert_eq!(next_text(&mut watch).await, "rooms/1=1");
    assert!(since.elapsed() <= interval, "{:?}", since.elapsed());
    // A key that changes all the time does not delay the listing.
    let writer = store.clone();
    let writes = tokio::spawn(async move {
        for number in 0.. {
            writer.set("rooms/1", number.to_string()).await.expect("set");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
    store.set("rooms/2", "new").await.expect("set");
    let since = tokio::time::Instant::now();
    while next_text(&mut watch).await != "rooms/2=new" {}
    assert!(since.elapsed() <= interval + Duration::from_secs(1), "{:?}", since.elapsed());
    writes.abort();
}

#[tokio::test(start_paused = true)]
async fn too_many_keys_end_the_stream() {
    let broker = Hub::new();
    let (service, store) = both(&broker).await;
    for number in 0..4 {
        store.set(format!("rooms/{number}"), "v").await.expect("set");
    }
    let mut watch = store.watch_pattern("rooms/*").keys_max(3);
    let end = loop {
        match next(&mut watch).await {
            PatternEvent::Ended(end) => break end,
            PatternEvent::Changed { .. } => {}
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(end, PatternEnd::TooManyKeys(3));
    assert!(end.to_string().contains("narrower pattern"), "{end}");
    assert_eq!(watch.next().await, None);
    tokio::time::sleep(SOON).await;
    store.get("k").await.expect("a response");
    assert_eq!(service.stats().registrations, 0);
    let mut all = store.watch_pattern("rooms/*").keys_max(4);
    for _ in 0..4 {
        assert!(next_text(&mut all).await.ends_with("=v"));
    }
    assert_eq!(next_text(&mut all).await, "Live");
}

#[tokio::test(start_paused = true)]
async fn excess_keys_are_skipped_until_a_watched_key_is_deleted() {
    let broker = Hub::new();
    let (service, store) = both(&broker).await;
    for number in 0..3 {
        store.set(format!("rooms/{number}"), "v").await.expect("set");
    }
    let mut watch = store.watch_pattern("rooms/*").keys_max(3).skip_excess_keys();
    let mut first = [next_text(&mut watch).await, next_text(&mut watch).await];
    first.sort();
    assert_eq!(first, ["rooms/0=v", "rooms/1=v"]);
    assert_eq!([next_text(&mut watch).await, next_text(&mut watch).await], ["rooms/2=v", "Live"]);
    // Keys of another client, before and after those that are watched.
    for number in 0..50 {
        store.set(format!("rooms/!{number}"), "hostile").await.expect("set");
        store.set(format!("rooms/z{number}"), "hostile").await.expect("set");
    }
    assert_eq!(next(&mut watch).await, PatternEvent::Skipped(100));
    assert_eq!(service.stats().registrations, 3);
    store.set("rooms/1", "w").await.expect("set");
    assert_eq!(next_text(&mut watch).await, "rooms/1=w", "the stream continues");
    store.del("rooms/1").await.expect("del");
    assert_eq!(next_text(&mut watch).await, "rooms/1 is gone");
    assert_eq!(next(&mut watch).await, PatternEvent::Skipped(100));
    let mut last = [next_text(&mut watch).await, next_text(&mut watch).await];
    last.sort();
    assert_eq!(last, ["Skipped(99)", "rooms/!0=hostile"], "the first key of a listing");
    assert_eq!(service.stats().registrations, 3);
}

#[tokio::test(start_paused = true)]
async fn processed_versions_are_omitted_and_deletions_since_are_reported() {
    let broker = Hub::new();
    let (_service, store) = both(&broker).await;
    for key in ["rooms/1", "rooms/2", "rooms/3", "rooms/4", "lamps/1"] {
        store.set(key, "v").await.expect("set");
    }
    let mut processed = BTreeMap::new();
    for key in ["rooms/1", "rooms/2", "rooms/3", "lamps/1"] {
        let stored = store.get(key).await.expect("get").expect("a value");
        processed.insert(key, stored.version.expect("a version"));
    }
    store.set("rooms/2", "w").await.expect("set");
    store.del("rooms/3").await.expect("del");
    store.del("lamps/1").await.expect("del");
    let mut watch = store.watch_pattern("rooms/*").since(processed.clone());
    let mut seen = Vec::new();
    while seen.last().map(String::as_str) != Some("Live") {
        seen.push(next_text(&mut watch).await);
    }
    seen.sort();
    assert_eq!(seen, ["Live", "rooms/2=w", "rooms/3 is gone", "rooms/4=v"]);
    store.set("rooms/1", "w").await.expect("set");
    assert_eq!(next_text(&mut watch).await, "rooms/1=w", "an omitted key is watched");
    store.set("rooms/3", "again").await.expect("set");
    assert_eq!(next_text(&mut watch).await, "rooms/3=again");
    assert!(is_silent(&mut watch).await);
    drop(watch);

    // A key that is skipped is not deleted.
    processed.insert("rooms/4", processed["rooms/1"].clone());
    processed.remove("rooms/3");
    let skipping = store.watch_pattern("rooms/*").keys_max(3).skip_excess_keys().since(processed);
    let mut watch = skipping;
    let mut seen = Vec::new();
    while seen.last().map(String::as_str) != Some("Live") {
        seen.push(next_text(&mut watch).await);
    }
    seen.sort();
    assert_eq!(seen.len(), 5, "three keys have other versions: {seen:?}");
    assert_eq!(seen[0], "Live");
    assert_eq!(seen[1], "Skipped(1)");
    assert!(seen[2..].iter().all(|event| event.starts_with("rooms/") && event.contains('=')));
}

#[tokio::test(start_paused = true)]
async fn invalid_pattern_and_closed_handle_end_the_stream() {
    let broker = Hub::new();
    let (_service, store) = both(&broker).await;
    let mut invalid = store.watch_pattern("rooms/[");
    let error = ServiceError::Known(Refusal::Syntax);
    let refused = PatternEnd::Failed(Error::Refused { error, reason: None });
    assert_eq!(next(&mut invalid).await, PatternEvent::Ended(refused));
    assert_eq!(invalid.next().await, None);
    store.set("rooms/1", "v").await.expect("set");
    let mut watch = store.watch_pattern("rooms/*");
    assert_eq!([next_text(&mut watch).await, next_text(&mut watch).await], ["rooms/1=v", "Live"]);
    store.shutdown().await;
    let mut last = next(&mut watch).await;
    if last == PatternEvent::Gap {
        last = next(&mut watch).await;
    }
    assert!(matches!(last, PatternEvent::Ended(PatternEnd::Failed(Error::Closed(_)))), "{last:?}");
    assert_eq!(watch.next().await, None);
}

#[tokio::test(start_paused = true)]
async fn one_gap_is_reported_for_all_keys() {
    let broker = Hub::new();
    let (service, store) = both(&broker).await;
    for key in ["rooms/1", "rooms/2", "rooms/3"] {
        store.set(key, "v").await.expect("set");
    }
    let mut watch = store.watch_pattern("rooms/*");
    while next_text(&mut watch).await != "Live" {}
    broker.stop();
    assert_eq!(next_text(&mut watch).await, "Gap");
    assert!(is_silent(&mut watch).await, "one gap, however long it lasts");
    broker.restart();
    service.wait_connected().await.expect("the store connects again");
    store.wait_connected().await.expect("the client connects again");
    assert_eq!(next_text(&mut watch).await, "Live", "no value has changed");
}
