//! Watches of patterns.

use std::collections::BTreeMap;
use std::time::Duration;

use statestore_tokio::{PatternEvent, PatternWatch, StateStore};

use super::{Stage, client, impatient_client, service};

/// Longer than a turn of the machines, and shorter than the patience of a case.
const INTERVAL: Duration = Duration::from_millis(200);

/// The state that the events of a watch describe.
#[derive(Default)]
struct Seen(BTreeMap<String, String>);

impl Seen {
    fn apply(&mut self, event: PatternEvent) {
        match event {
            PatternEvent::Changed { key, value, .. } => {
                let key = key.escape_ascii().to_string();
                match value {
                    Some(value) => _ = self.0.insert(key, value.escape_ascii().to_string()),
                    None => _ = self.0.remove(&key),
                }
            }
            PatternEvent::Live | PatternEvent::Gap => {}
            other => panic!("ended, or an unknown event: {other:?}"),
        }
    }

    /// Applies events until this event.
    async fn until(&mut self, watch: &mut PatternWatch, expected: &PatternEvent) {
        loop {
            let event = watch.next().await.expect("the watch continues");
            let is_it = event == *expected;
            self.apply(event);
            if is_it {
                return;
            }
        }
    }

    /// Applies events until the state is this one.
    async fn reach(&mut self, watch: &mut PatternWatch, expected: &[(&str, &str)]) {
        let owned = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        let expected: BTreeMap<_, _> = expected.iter().map(owned).collect();
        while self.0 != expected {
            self.apply(watch.next().await.expect("the watch continues"));
        }
    }
}

async fn set(store: &StateStore, key: &str, value: &str) {
    store.set(key.to_owned(), value.to_owned()).await.expect("set");
}

pub(super) async fn pattern_is_watched<S: Stage>(stage: &S) {
    let (_service, store) = (service(stage).await, client(stage, "a").await);
    let writer = client(stage, "b").await;
    set(&writer, "rooms/1", "21").await;
    set(&writer, "lamps/1", "on").await;
    let mut watch = store.watch_pattern("rooms/*").interval(INTERVAL);
    let mut seen = Seen::default();
    seen.until(&mut watch, &PatternEvent::Live).await;
    assert_eq!(seen.0, BTreeMap::from([("rooms/1".to_owned(), "21".to_owned())]));
    set(&writer, "rooms/1", "22").await;
    set(&writer, "rooms/2", "18").await;
    set(&writer, "lamps/1", "off").await;
    seen.reach(&mut watch, &[("rooms/1", "22"), ("rooms/2", "18")]).await;
    writer.del("rooms/1").await.expect("del");
    seen.reach(&mut watch, &[("rooms/2", "18")]).await;
    set(&writer, "rooms/1", "23").await;
    seen.reach(&mut watch, &[("rooms/1", "23"), ("rooms/2", "18")]).await;
}

pub(super) async fn pattern_is_watched_over_a_restart<S: Stage>(stage: &mut S) {
    let (service, store) = (service(stage).await, impatient_client(stage, "a").await);
    set(&store, "rooms/1", "21").await;
    set(&store, "rooms/2", "18").await;
    let mut watch = store.watch_pattern("rooms/*").interval(INTERVAL);
    let mut seen = Seen::default();
    seen.until(&mut watch, &PatternEvent::Live).await;
    stage.restart();
    seen.until(&mut watch, &PatternEvent::Gap).await;
    service.wait_connected().await.expect("again");
    let writer = impatient_client(stage, "b").await;
    while writer.set("rooms/1", "22").await.is_err() {}
    while writer.set("rooms/3", "19").await.is_err() {}
    // What is reported when the gap ends is current.
    seen.until(&mut watch, &PatternEvent::Live).await;
    seen.reach(&mut watch, &[("rooms/1", "22"), ("rooms/2", "18"), ("rooms/3", "19")]).await;
}
