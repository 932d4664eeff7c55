//! A store that is recorded: it does not wait for whoever writes that down.

use statestore_loopback::Hub;
use statestore_proto::store::recording::{Difference, Next, Replay, next_frame};
use statestore_tokio::{RecordingReader, StoreService, recording};

use super::client;

/// Plays it, with what differed.
fn play(mut recording: &[u8]) -> (Replay, Vec<Difference>) {
    let (mut replay, mut differences) = (Replay::new(), Vec::new());
    while let Next::Frame(frame, rest) = next_frame(recording).expect("a recording") {
        differences.extend(replay.play(frame).expect("a recording"));
        recording = rest;
    }
    assert!(recording.is_empty(), "the last frame is whole");
    (replay, differences)
}

async fn read(reader: &mut RecordingReader) -> Vec<u8> {
    let mut all = Vec::new();
    while let Some(part) = reader.recv().await {
        all.extend(part);
    }
    all
}

#[tokio::test(start_paused = true)]
async fn what_a_store_did_is_played_again() {
    let hub = Hub::new();
    let (recording, mut reader) = recording(1 << 20);
    for key in ["first", "second"] {
        let service = StoreService::builder().record(recording.clone());
        let service = service.spawn(hub.store_link("statestore"));
        service.connected().await.expect("the store connects");
        let store = client(hub.link(key)).await;
        store.set(key, "v").await.expect("it is set");
        store.shutdown().await;
        service.shutdown().await;
    }
    drop(recording);
    let (replay, differences) = play(&read(&mut reader).await);
    assert_eq!((replay.played().stores, replay.ended()), (2, Some("the store has ended")));
    assert_eq!(differences, []);
    let store = replay.store().expect("a store");
    assert!(store.get(statestore_proto::time::Now::default(), b"second").is_some());
}

/// What waits is bounded in bytes; what comes then is not recorded, and done.
#[tokio::test(start_paused = true)]
async fn a_store_does_not_wait_for_its_recording() {
    let hub = Hub::new();
    let (recording, mut reader) = recording(4_000);
    let service = StoreService::builder().record(recording);
    let service = service.spawn(hub.store_link("statestore"));
    service.connected().await.expect("the store connects");
    let store = client(hub.link("c")).await;
    for number in 0..100 {
        store.set("k", format!("{number}")).await.expect("it is set");
    }
    let held = store.get("k").await.expect("it is read").expect("it is there");
    assert_eq!(&held.value[..], b"99");
    service.shutdown().await;
    let all = read(&mut reader).await;
    assert!(all.len() < 4_200, "{} bytes", all.len());
    let (replay, differences) = play(&all);
    assert_eq!(replay.ended(), Some("it was not written as fast as it was made"));
    assert!(differences.is_empty() && replay.played().messages > 2);
}

/// Nobody reads any more.
#[tokio::test(start_paused = true)]
async fn a_recording_that_nobody_takes_ends() {
    let hub = Hub::new();
    let (recording, reader) = recording(4_000);
    drop(reader);
    let service = StoreService::builder().record(recording);
    let service = service.spawn(hub.store_link("statestore"));
    service.connected().await.expect("the store connects");
    client(hub.link("c")).await.set("k", "v").await.expect("it is set");
    assert_eq!(service.stats().keys, 1);
    service.shutdown().await;
}
