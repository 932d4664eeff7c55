//! Limits: excess work is rejected or queued, and does not affect other clients.

use std::time::Duration;

use statestore_proto::machine::{Input, Machine as _};
use statestore_proto::store::{Store, StoreConfig};
use statestore_proto::transport::Incoming;
use statestore_server::{BindError, Broker, EmbeddedLink, Limits, Redirect};
use statestore_testkit::process::{Port, timely, wait_free};
use statestore_testkit::wire::packets::Reason;
use statestore_testkit::wire::raw::{Hello, Raw, blob, response_topic};
use statestore_tokio::{AsIncoming, Link, LinkEvent, StateStore};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use crate::{client, open, options, options_at, raw, start};

#[tokio::test]
async fn bind_error_names_the_address_in_use() {
    let (broker, _service) = start(options()).await;
    let taken = broker.local_addr();
    let again = Broker::bind(statestore_server::Options::new(taken)).await;
    let error = again.expect_err("only one can");
    assert!(matches!(error, BindError::InUse(address) if address == taken), "{error:?}");
    assert!(error.to_string().contains("another port"), "{error}");
    let nowhere = statestore_server::Options::new(([192, 0, 2, 1], 1883));
    let error = Broker::bind(nowhere).await.expect_err("not an address of this machine");
    assert!(matches!(error, BindError::Address { .. }), "{error:?}");
    drop(broker);
}

/// If the broker closed the socket with unread input, the client could not finish its write, and
/// might lose the DISCONNECT.
#[tokio::test]
async fn client_that_still_writes_receives_its_disconnect() {
    timely(async {
        let (broker, _service) = start(options()).await;
        let mut stream = TcpStream::connect(broker.local_addr()).await.expect("connected");
        // A CONNECT, a PINGREQ with an invalid flag, and more than the broker reads at a time.
        let connect = b"\x10\x0e\x00\x04MQTT\x05\x02\x00\x00\x00\x00\x01a".as_slice();
        let bytes = [connect, &[0xc1, 0x00], &[0; 100 << 10]].concat();
        stream.write_all(&bytes).await.expect("the broker reads everything");
        let mut received = Vec::new();
        stream.read_to_end(&mut received).await.expect("the socket is not reset");
        // The broker still reads. The first write to a closed socket would reset it, and the second
        // one would fail.
        for _ in 0..10 {
            stream.write_all(&[0; 100]).await.expect("the socket is not reset");
        }
        let (connack, disconnect) = received.split_at(received.len() - 4);
        assert_eq!((connack[0], disconnect), (0x20, [0xe0, 0x02, 0x81, 0x00].as_slice()));
    })
    .await;
}

#[tokio::test]
async fn stopped_or_dropped_broker_frees_its_port() {
    timely(async {
        let port = Port::free();
        let (broker, service) = start(options_at(&port)).await;
        let address = broker.local_addr();
        broker.stop().await;
        wait_free(address);
        let other = Broker::bind(statestore_server::Options::new(address)).await;
        drop(other.expect("the port is free"));
        while let Err(error) = broker.start().await {
            assert!(matches!(error, BindError::InUse(_)), "{error}");
            tokio::task::yield_now().await;
        }
        service.wait_connected().await.expect("the store is back");
        assert_eq!(client(&broker, "a").await.get("k").await, Ok(None));
        drop(broker);
        assert!(service.wait_closed().await.to_string().contains("dropped"));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn redirect_disconnects_clients_and_keeps_the_store() {
    timely(async {
        let (broker, service) = start(options()).await;
        let mut client = raw(&broker, "client");
        assert_eq!(client.command(&["SET", "k", "v"]), b"+OK\r\n");
        broker.redirect(Redirect::Server("10.0.0.2:1883"));
        assert_eq!(client.ended(), Some(Reason::USE_ANOTHER_SERVER));
        let again = Raw::try_open(broker.local_addr().port(), "client", Hello::default());
        assert_eq!(again.err(), Some(Some(Reason::USE_ANOTHER_SERVER)));
        broker.redirect(Redirect::None);
        assert_eq!(raw(&broker, "client").command(&["GET", "k"]), b"$1\r\nv\r\n");
        assert_eq!(service.stats().keys, 1);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_above_the_limit_are_rejected_and_silent_connections_do_not_count() {
    timely(async {
        let (broker, _service) = start(options().max_connections(2)).await;
        let first = raw(&broker, "first");
        let mut silent = Vec::new();
        for _ in 0..300 {
            let stream = TcpStream::connect(broker.local_addr()).await;
            silent.push(stream.expect("connect"));
        }
        let second = raw(&broker, "second");
        let third = || Raw::try_open(broker.local_addr().port(), "third", Hello::default());
        assert_eq!(third().err(), Some(Some(Reason::SERVER_BUSY)));
        drop((first, second));
        while third().is_err() {}
        drop(silent);
    })
    .await;
}

/// A client with a small maximum packet size gets small pages, and an error for a large value.
#[tokio::test(flavor = "multi_thread")]
async fn responses_respect_the_maximum_packet_size_of_their_client() {
    timely(async {
        let (broker, _service) = start(options()).await;
        let writer = client(&broker, "writer").await;
        let value = "v".repeat(1_000);
        writer.set("large", &*value).await.expect("set");
        for at in 0..50 {
            writer.set(format!("small {at:02}"), "v").await.expect("set");
        }
        let hello = Hello { packet_bytes: Some(400), ..Hello::default() };
        let mut narrow = open(&broker, "narrow", hello);
        narrow.subscribe(&response_topic("narrow"));
        assert_eq!(narrow.command(&["GET", "large"]), b"-ERR the quota has been exceeded\r\n");
        assert_eq!(narrow.command(&["GET", "small 00"]), b"$1\r\nv\r\n");
        let page = narrow.command(&["SCAN", "*"]);
        assert!(page.starts_with(b"*2\r\n"), "the first of many: {}", page.escape_ascii());
        let mut wide = raw(&broker, "wide");
        assert_eq!(wide.command(&["GET", "large"]), blob(value.as_bytes()));
        assert!(wide.command(&["SCAN", "*"]).starts_with(b"*1\r\n"), "all of it");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_above_the_rate_limit_are_rejected() {
    timely(async {
        let (broker, _service) = start(options().rate_limit(5)).await;
        let mut one = raw(&broker, "one");
        let reasons: Vec<_> = (0..8).map(|_| one.publish("t", false, "x")).collect();
        assert_eq!(reasons[..5], [Reason::NO_MATCHING_SUBSCRIBERS; 5]);
        assert!(reasons.contains(&Reason::QUOTA_EXCEEDED), "{reasons:?}");
        let mut other = raw(&broker, "other");
        let reason = other.publish("t", false, "x");
        assert_eq!(reason, Reason::NO_MATCHING_SUBSCRIBERS, "the limit is per client");
    })
    .await;
}

/// The maximum packet size in the CONNACK.
fn packet_size_max(raw: &Raw) -> Option<u32> {
    raw.welcome.maximum_packet_size
}

#[tokio::test(flavor = "multi_thread")]
async fn maximum_packet_size_is_announced_and_accepted() {
    timely(async {
        let (broker, _service) = start(options().max_packet_size(10_000)).await;
        let mut raw = open(&broker, "raw", Hello::default());
        assert_eq!(packet_size_max(&raw), Some(10_000));
        let reason = raw.publish("t", false, vec![0; 9_000]);
        assert_eq!(reason, Reason::NO_MATCHING_SUBSCRIBERS);
    })
    .await;
    // By default enough for a value of a megabyte, and no more than any client library accepts.
    timely(async {
        let (broker, _service) = start(options()).await;
        let announced = packet_size_max(&open(&broker, "raw", Hello::default()));
        assert!(
            announced.is_some_and(|bytes| (1_100_000..=268_435_455).contains(&bytes)),
            "{announced:?}"
        );
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn client_that_does_not_read_does_not_affect_others() {
    timely(async {
        let (broker, service) = start(options()).await;
        let mut slow = raw(&broker, "slow");
        assert_eq!(slow.command(&["KEYNOTIFY", "k"]), b"+OK\r\n");
        let mut reader = raw(&broker, "reader");
        assert_eq!(reader.command(&["KEYNOTIFY", "k"]), b"+OK\r\n");
        let writer = client(&broker, "writer").await;
        let mut written = 0;
        // When its queue is full, the client is disconnected instead of silently missing a
        // notification.
        while service.stats().registrations > 1 {
            writer.set("k", vec![b'v'; 100_000]).await.expect("the store continues");
            reader.notification();
            written += 1;
        }
        assert!(written > 50, "the queue has a useful capacity");
        assert!(reader.receives_nothing_more(), "the reader has received all notifications");
        slow.ended();
        let mut back = raw(&broker, "slow");
        assert_eq!(back.command(&["DEL", "k"]), b":1\r\n");
    })
    .await;
}

/// Connects a link and subscribes like a store.
async fn subscribed(broker: &Broker) -> EmbeddedLink {
    let mut link = broker.store_link();
    link.connect().await.expect("connect");
    let mut store = Store::new(StoreConfig::new(1));
    store.handle(
        statestore_proto::time::Now::default(),
        Input::Connected { session_present: false },
    );
    while let Some(transmit) = store.poll_transmit() {
        link.try_send(transmit).expect("queue has capacity");
    }
    assert!(
        matches!(link.next_event(true).await, Ok(LinkEvent::Subscribed(_, reason)) if !reason.is_error())
    );
    link
}

/// Returns the payload of the next request.
async fn request(link: &mut EmbeddedLink) -> Vec<u8> {
    loop {
        if let LinkEvent::Message(message) = link.next_event(true).await.expect("a connection") {
            let incoming: Incoming<'_> = message.as_incoming().expect("a message");
            return incoming.payload.to_vec();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn requests_wait_for_a_busy_store_and_are_served_in_turn() {
    let mut limits = Limits::default();
    limits.host_queue_bytes = 2_000;
    let broker = Broker::bind(options().limits(limits)).await.expect("bind");
    let mut link = subscribed(&broker).await;
    let a_while = Duration::from_secs(3_600);
    let spawn = |client_id| {
        StateStore::builder().timeout(a_while).spawn(broker.link(client_id)).expect("an id")
    };
    let (asker, other) = (spawn("a"), spawn("b"));
    let ask = |store: &StateStore, number: usize| {
        let store = store.clone();
        tokio::spawn(async move { store.set(format!("key {number:04}"), "v").await })
    };
    let calls: Vec<_> = (0..20).map(|number| ask(&asker, number)).collect();
    let nothing = tokio::time::timeout(Duration::from_secs(120), link.next_event(false)).await;
    assert!(nothing.is_err(), "no message is returned while messages are not requested");
    assert!(!calls.iter().any(JoinHandle::is_finished), "all of them wait");
    assert!(broker.stats().bytes < 60_000, "excess requests wait in their client: {broker:?}");
    let late = ask(&other, 9_999);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let mut keys = Vec::new();
    for _ in 0..=calls.len() {
        keys.push(request(&mut link).await);
    }
    let is_late = |key: &Vec<u8>| key.windows(8).any(|part| part == b"key 9999");
    let at = keys.iter().position(is_late);
    assert!(at.is_some_and(|at| at <= 1), "after at most one request of the other client: {at:?}");
    keys.retain(|key| !is_late(key));
    assert!(keys.is_sorted(), "{keys:?}");
    keys.dedup();
    assert_eq!(keys.len(), calls.len());
    assert!(!late.is_finished(), "its request is unanswered");
}
