//! Capturing a store: the store does not wait for the reader.

use statestore_capture::{Difference, Next, Replay, next_frame};
use statestore_loopback::Hub;
use statestore_tokio::StoreService;
use statestore_tokio::service::{CaptureReader, capture};

use super::client;

/// Replays the capture and returns the differences.
fn play(mut capture: &[u8]) -> (Replay, Vec<Difference>) {
    let (mut replay, mut differences) = (Replay::new(), Vec::new());
    while let Next::Frame(frame, rest) = next_frame(capture).expect("a capture") {
        differences.extend(replay.play(frame).expect("a capture"));
        capture = rest;
    }
    assert!(capture.is_empty(), "the last frame is whole");
    (replay, differences)
}

async fn read(reader: &mut CaptureReader) -> Vec<u8> {
    let mut all = Vec::new();
    while let Some(part) = reader.recv().await {
        all.extend(part);
    }
    all
}

#[tokio::test(start_paused = true)]
async fn capture_of_two_stores_replays_without_differences() {
    let hub = Hub::new();
    let (capture, mut reader) = capture(1 << 20);
    for key in ["first", "second"] {
        let service = StoreService::builder().capture(capture.clone());
        let service = service.spawn(hub.store_link("statestore"));
        service.wait_connected().await.expect("the store connects");
        let store = client(hub.link(key)).await;
        store.set(key, "v").await.expect("it is set");
        store.shutdown().await;
        service.shutdown().await;
    }
    drop(capture);
    let (replay, differences) = play(&read(&mut reader).await);
    assert_eq!((replay.played().stores, replay.ended()), (2, Some("the store has ended")));
    assert_eq!(differences, []);
    let store = replay.store().expect("a store");
    assert!(store.get(statestore_proto::time::Now::default(), b"second").is_some());
}

/// The queue is bounded in bytes. The capture ends when it is full, and the store continues.
#[tokio::test(start_paused = true)]
async fn full_queue_ends_the_capture_and_not_the_store() {
    let hub = Hub::new();
    let (capture, mut reader) = capture(4_000);
    let service = StoreService::builder().capture(capture);
    let service = service.spawn(hub.store_link("statestore"));
    service.wait_connected().await.expect("the store connects");
    let store = client(hub.link("c")).await;
    for number in 0..100 {
        store.set("k", format!("{number}")).await.expect("it is set");
    }
    let held = store.get("k").await.expect("it is read").expect("the key exists");
    assert_eq!(&held.value[..], b"99");
    service.shutdown().await;
    let all = read(&mut reader).await;
    assert!(all.len() < 4_200, "{} bytes", all.len());
    let (replay, differences) = play(&all);
    assert_eq!(replay.ended(), Some("the reader is too slow and the queue is full"));
    assert!(differences.is_empty() && replay.played().messages > 2);
}

/// The reader is dropped before the store starts.
#[tokio::test(start_paused = true)]
async fn capture_without_a_reader_does_not_stop_the_store() {
    let hub = Hub::new();
    let (capture, reader) = capture(4_000);
    drop(reader);
    let service = StoreService::builder().capture(capture);
    let service = service.spawn(hub.store_link("statestore"));
    service.wait_connected().await.expect("the store connects");
    client(hub.link("c")).await.set("k", "v").await.expect("it is set");
    assert_eq!(service.stats().keys, 1);
    service.shutdown().await;
}
