//! Several watches of one key by one handle.

use std::time::Duration;

use statestore_loopback::Hub;
use statestore_proto::client::WatchEvent;
use statestore_proto::message::CommandKind;
use statestore_tokio::{StoreService, Watch};

use crate::both;

/// Longer than anything here takes.
const SOON: Duration = Duration::from_secs(5);

async fn next(watch: &mut Watch) -> WatchEvent {
    let event = tokio::time::timeout(SOON, watch.next()).await.expect("something is told");
    event.expect("it goes on")
}

/// The value that the next event tells; a text for other events.
async fn told(watch: &mut Watch) -> String {
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
    (applied(CommandKind::Watch), applied(CommandKind::Unwatch), stats.watches)
}

#[tokio::test(start_paused = true)]
async fn watches_of_one_key_share_one_registration() {
    let broker = Hub::new();
    let (service, store) = both(&broker).await;
    let mut first = store.watch("k").await.expect("watch");
    assert_eq!(told(&mut first).await, "Live");
    let mut second = store.watch("k").await.expect("watch");
    assert_eq!(told(&mut second).await, "Live", "there is no value");
    store.set("k", "1").await.expect("set");
    let mut third = store.watch("k").await.expect("watch");
    assert_eq!([told(&mut third).await, told(&mut third).await], ["1", "Live"]);
    store.set("k", "2").await.expect("set");
    store.del("k").await.expect("del");
    for watch in [&mut first, &mut second] {
        assert_eq!(told(watch).await, "1");
    }
    for watch in [&mut first, &mut second, &mut third] {
        assert_eq!([told(watch).await, told(watch).await], ["2", "none"]);
    }
    assert_eq!(registrations(&service), (1, 0, 1));

    drop((first, third));
    store.set("k", "3").await.expect("set");
    assert_eq!(told(&mut second).await, "3", "the others do not end it");
    assert_eq!(registrations(&service), (1, 0, 1));
    drop(second);
    store.get("k").await.expect("an answer");
    assert_eq!(registrations(&service), (1, 1, 0), "the last one does");

    let mut again = store.watch("k").await.expect("watch");
    assert_eq!([told(&mut again).await, told(&mut again).await], ["3", "Live"]);
    assert_eq!(registrations(&service), (2, 1, 1));
}

#[tokio::test(start_paused = true)]
async fn one_that_is_dropped_at_once_leaves_the_other_alone() {
    let broker = Hub::new();
    let (service, store) = both(&broker).await;
    let mut kept = store.watch("k").await.expect("watch");
    drop(store.watch("k").await.expect("watch"));
    // Given up before it was told.
    drop(tokio::time::timeout(Duration::ZERO, store.watch("k")).await);
    assert_eq!(told(&mut kept).await, "Live");
    store.set("k", "v").await.expect("set");
    assert_eq!(told(&mut kept).await, "v");
    assert_eq!(registrations(&service), (1, 0, 1));
}

#[tokio::test(start_paused = true)]
async fn one_that_lags_is_told_a_gap_and_the_others_are_not() {
    let broker = Hub::new();
    let (service, store) = both(&broker).await;
    let mut lazy = store.watch("k").await.expect("watch");
    let mut eager = store.watch("k").await.expect("watch");
    assert_eq!(told(&mut eager).await, "Live");
    for number in 0..400 {
        store.set("k", number.to_string()).await.expect("set");
        assert_eq!(told(&mut eager).await, number.to_string());
    }
    let mut seen = vec![told(&mut lazy).await];
    while seen.last().is_some_and(|last| last != "Gap") {
        seen.push(told(&mut lazy).await);
    }
    assert!(seen.len() > 200 && seen.len() < 300, "{} before the gap", seen.len());
    assert_eq!(seen[..3], ["Live", "0", "1"], "in order, from the beginning");
    assert_eq!([told(&mut lazy).await, told(&mut lazy).await], ["399", "Live"]);
    store.set("k", "again").await.expect("set");
    assert_eq!((told(&mut lazy).await, told(&mut eager).await), ("again".into(), "again".into()));
    assert_eq!(registrations(&service), (1, 0, 1));
    assert!(is_silent(&mut eager).await && is_silent(&mut lazy).await);
    assert_eq!(
        service.stats().counters.of(CommandKind::Get).executed(),
        1,
        "nothing is read again"
    );
}

#[tokio::test(start_paused = true)]
async fn one_that_takes_the_rest_while_changes_go_on_catches_up() {
    let broker = Hub::new();
    let (_service, store) = both(&broker).await;
    let mut watch = store.watch("k").await.expect("watch");
    let writes = tokio::spawn(async move {
        for number in 0..2_000 {
            store.set("k", number.to_string()).await.expect("set");
        }
        store
    });
    // It takes one of what is told for each that it leaves.
    let (mut last, mut gaps, mut live) = (None, 0, false);
    while last.as_deref() != Some("1999") || !live {
        match told(&mut watch).await.as_str() {
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
async fn all_are_told_of_a_lost_connection_and_of_its_end() {
    let broker = Hub::new();
    let (_service, store) = both(&broker).await;
    store.set("k", "1").await.expect("set");
    let mut first = store.watch("k").await.expect("watch");
    assert_eq!([told(&mut first).await, told(&mut first).await], ["1", "Live"]);
    broker.stop();
    assert_eq!(told(&mut first).await, "Gap");
    let mut second = store.watch("k").await.expect("watch");
    assert_eq!([told(&mut second).await, told(&mut second).await], ["1", "Gap"]);
    broker.restart();
    for watch in [&mut first, &mut second] {
        assert_eq!(told(watch).await, "Live", "the value has not moved");
    }
    store.clone().shutdown().await;
    for watch in [&mut first, &mut second] {
        assert_eq!(told(watch).await, "Gap");
        assert_eq!(watch.next().await, None);
    }
}
