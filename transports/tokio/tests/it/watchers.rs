//! Several watches of one key by one handle.

use std::time::Duration;

use statestore_loopback::Hub;
use statestore_proto::client::WatchEvent;
use statestore_proto::message::RequestKind;
use statestore_tokio::{StoreService, Watch};

use crate::both;

/// Longer than any step of these tests.
const SOON: Duration = Duration::from_secs(5);

async fn next(watch: &mut Watch) -> WatchEvent {
    let event = tokio::time::timeout(SOON, watch.next()).await.expect("an event");
    event.expect("the watch continues")
}

/// The value of the next event, or the name of another event.
async fn next_text(watch: &mut Watch) -> String {
    match next(watch).await {
        WatchEvent::Changed { value: Some(value), .. } => value.escape_ascii().to_string(),
        WatchEvent::Changed { value: None, .. } => "none".into(),
        other => format!("{other:?}"),
    }
}

async fn is_silent(watch: &mut Watch) -> bool {
    tokio::time::timeout(SOON, watch.next()).await.is_err()
}

fn registrations(service: &StoreService) -> (u64, u64, usize) {
    let stats = service.stats();
    let applied = |verb| stats.counters.of(verb).applied;
    (applied(RequestKind::Watch), applied(RequestKind::Unwatch), stats.registrations)
}

#[tokio::test(start_paused = true)]
async fn watches_of_one_key_share_one_registration() {
    let broker = Hub::new();
    let (service, store) = both(&broker).await;
    let mut first = store.watch("k").await.expect("watch");
    assert_eq!(next_text(&mut first).await, "Live");
    let mut second = store.watch("k").await.expect("watch");
    assert_eq!(next_text(&mut second).await, "Live", "the key is absent");
    store.set("k", "1").await.expect("set");
    let mut third = store.watch("k").await.expect("watch");
    assert_eq!([next_text(&mut third).await, next_text(&mut third).await], ["1", "Live"]);
    store.set("k", "2").await.expect("set");
    store.del("k").await.expect("del");
    for watch in [&mut first, &mut second] {
        assert_eq!(next_text(watch).await, "1");
    }
    for watch in [&mut first, &mut second, &mut third] {
        assert_eq!([next_text(watch).await, next_text(watch).await], ["2", "none"]);
    }
    assert_eq!(registrations(&service), (1, 0, 1));

    drop((first, third));
    store.set("k", "3").await.expect("set");
    assert_eq!(next_text(&mut second).await, "3", "dropping the others does not end this watch");
    assert_eq!(registrations(&service), (1, 0, 1));
    drop(second);
    store.get("k").await.expect("a response");
    assert_eq!(registrations(&service), (1, 1, 0), "dropping the last one ends the registration");

    let mut again = store.watch("k").await.expect("watch");
    assert_eq!([next_text(&mut again).await, next_text(&mut again).await], ["3", "Live"]);
    assert_eq!(registrations(&service), (2, 1, 1));
}

#[tokio::test(start_paused = true)]
async fn dropping_a_watch_does_not_affect_another() {
    let broker = Hub::new();
    let (service, store) = both(&broker).await;
    let mut kept = store.watch("k").await.expect("watch");
    drop(store.watch("k").await.expect("watch"));
    // Dropped before the drive loop has responded.
    drop(tokio::time::timeout(Duration::ZERO, store.watch("k")).await);
    assert_eq!(next_text(&mut kept).await, "Live");
    store.set("k", "v").await.expect("set");
    assert_eq!(next_text(&mut kept).await, "v");
    assert_eq!(registrations(&service), (1, 0, 1));
}

#[tokio::test(start_paused = true)]
async fn only_the_lagging_watch_reports_a_gap() {
    let broker = Hub::new();
    let (service, store) = both(&broker).await;
    let mut lazy = store.watch("k").await.expect("watch");
    let mut eager = store.watch("k").await.expect("watch");
    assert_eq!(next_text(&mut eager).await, "Live");
    for number in 0..400 {
        store.set("k", number.to_string()).await.expect("set");
        assert_eq!(next_text(&mut eager).await, number.to_string());
    }
    let mut seen = vec![next_text(&mut lazy).await];
    while seen.last().is_some_and(|last| last != "Gap") {
        seen.push(next_text(&mut lazy).await);
    }
    assert!(seen.len() > 200 && seen.len() < 300, "{} before the gap", seen.len());
    assert_eq!(seen[..3], ["Live", "0", "1"], "events in order, from the beginning");
    assert_eq!([next_text(&mut lazy).await, next_text(&mut lazy).await], ["399", "Live"]);
    store.set("k", "again").await.expect("set");
    assert_eq!(
        (next_text(&mut lazy).await, next_text(&mut eager).await),
        ("again".into(), "again".into())
    );
    assert_eq!(registrations(&service), (1, 0, 1));
    assert!(is_silent(&mut eager).await && is_silent(&mut lazy).await);
    assert_eq!(
        service.stats().counters.of(RequestKind::Get).executed(),
        1,
        "the key is not read again"
    );
}

#[tokio::test(start_paused = true)]
async fn lagging_watch_catches_up_during_writes() {
    let broker = Hub::new();
    let (_service, store) = both(&broker).await;
    let mut watch = store.watch("k").await.expect("watch");
    let writes = tokio::spawn(async move {
        for number in 0..2_000 {
            store.set("k", number.to_string()).await.expect("set");
        }
        store
    });
    // The watch is slower than the writes until its first gap.
    let (mut last, mut gaps, mut live) = (None, 0, false);
    while last.as_deref() != Some("1999") || !live {
        match next_text(&mut watch).await.as_str() {
            "Gap" => (gaps, live) = (gaps + 1, false),
            "Live" => live = true,
            value => last = Some(value.to_owned()),
        }
        if gaps == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    assert!(gaps <= 1 + 2_000 / 256, "{gaps}");
    writes.await.expect("no panic");
}

#[tokio::test(start_paused = true)]
async fn all_watches_report_a_lost_connection_and_the_end() {
    let broker = Hub::new();
    let (_service, store) = both(&broker).await;
    store.set("k", "1").await.expect("set");
    let mut first = store.watch("k").await.expect("watch");
    assert_eq!([next_text(&mut first).await, next_text(&mut first).await], ["1", "Live"]);
    broker.stop();
    assert_eq!(next_text(&mut first).await, "Gap");
    let mut second = store.watch("k").await.expect("watch");
    assert_eq!([next_text(&mut second).await, next_text(&mut second).await], ["1", "Gap"]);
    broker.restart();
    for watch in [&mut first, &mut second] {
        assert_eq!(next_text(watch).await, "Live", "the value is unchanged");
    }
    store.clone().shutdown().await;
    for watch in [&mut first, &mut second] {
        assert_eq!(next_text(watch).await, "Gap");
        assert_eq!(watch.next().await, None);
    }
}
