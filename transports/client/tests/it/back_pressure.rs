//! A connection whose machine accepts no messages.

use statestore_client::{ClientLink, Link, LinkErrorKind, LinkEvent};
use statestore_testkit::brokers::scripted::{Scripted, Welcome};
use statestore_testkit::process::timely;
use statestore_testkit::wire::packets::{Publish, Qos};

/// Uses two threads, since a busy loop on a single thread would also stop the timeout.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_connection_is_reported_while_the_queue_of_messages_is_full() {
    for manual_acks in [false, true] {
        let broker = Scripted::start().await;
        let options = broker.options("c1").receive_maximum(2);
        let mut link = ClientLink::for_client(options).manual_acks(manual_acks);
        let lost = tokio::spawn(async move {
            link.connect().await.expect("accepted");
            loop {
                match link.next_event(false).await {
                    Ok(LinkEvent::Message(_)) => panic!("unexpected message"),
                    Ok(_) => {}
                    Err(error) => return error,
                }
            }
        });
        let mut peer = broker.welcome(Welcome::default()).await;
        for _ in 0..5 {
            peer.send(&Publish::new("t", Qos::AtMostOnce, "m", None).to_bytes()).await;
        }
        drop(peer);
        let error = timely(lost).await.expect("no panic");
        assert_eq!(error.kind(), LinkErrorKind::Lost, "manual_acks: {manual_acks}");
    }
}

/// The session stops when its event queue is full, and continues without new bytes.
#[tokio::test]
async fn packets_of_one_read_beyond_the_event_queue_all_arrive() {
    const MESSAGES: usize = 9_000;
    let broker = Scripted::start().await;
    let mut link = ClientLink::for_client(broker.options("c1"));
    let (connected, mut peer) = tokio::join!(link.connect(), broker.welcome(Welcome::default()));
    connected.expect("accepted");
    let packet = Publish::new("t", Qos::AtMostOnce, "", None).to_bytes();
    peer.send(&packet.repeat(MESSAGES)).await;
    timely(async {
        for _ in 0..MESSAGES {
            assert!(matches!(link.next_event(true).await, Ok(LinkEvent::Message(_))));
        }
    })
    .await;
}
