//! What is too much is refused or waits, and hurts nobody else.

use std::time::Duration;

use statestore_embedded::{BindError, Broker, EmbeddedLink, Limits, Referral};
use statestore_proto::mqtt::Incoming;
use statestore_proto::store::{Store, StoreConfig};
use statestore_tests::mqttbytes::v5::{ConnectReturnCode, DisconnectReasonCode, PubAckReason};
use statestore_tests::raw::{Hello, Raw, blob, response_topic};
use statestore_tests::timely::timely;
use statestore_tokio::{AsIncoming, Link, LinkEvent, StateStore};
use tokio::task::JoinHandle;

use crate::{client, open, options, raw, start};

#[tokio::test]
async fn a_port_that_is_taken_is_named() {
    let (broker, _service) = start(options()).await;
    let taken = broker.local_addr();
    let again = Broker::bind(statestore_embedded::Options::new(taken)).await;
    let error = again.expect_err("only one can");
    assert!(matches!(error, BindError::InUse(address) if address == taken), "{error:?}");
    assert!(error.to_string().contains("another port"), "{error}");
    let nowhere = statestore_embedded::Options::new(([192, 0, 2, 1], 1883));
    let error = Broker::bind(nowhere).await.expect_err("not an address of this machine");
    assert!(matches!(error, BindError::Address { .. }), "{error:?}");
    drop(broker);
}

#[tokio::test]
async fn a_stopped_broker_frees_its_port_and_a_dropped_one_too() {
    timely(async {
        let (broker, service) = start(options()).await;
        let address = broker.local_addr();
        broker.stop().await;
        let other = Broker::bind(statestore_embedded::Options::new(address)).await;
        drop(other.expect("the port is free"));
        while let Err(error) = broker.start().await {
            assert!(matches!(error, BindError::InUse(_)), "{error}");
            tokio::task::yield_now().await;
        }
        service.connected().await.expect("the store is back");
        assert_eq!(client(&broker, "a").await.get("k").await, Ok(None));
        let mut service = service;
        drop(broker);
        assert!(service.stopped().await.to_string().contains("gone"));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_are_referred_to_another_server_and_the_store_stays() {
    timely(async {
        let (broker, service) = start(options()).await;
        let mut client = raw(&broker, "client");
        assert_eq!(client.command(&["SET", "k", "v"]), b"+OK\r\n");
        broker.refer(Referral::Server("10.0.0.2:1883"));
        assert_eq!(client.ended(), Some(DisconnectReasonCode::UseAnotherServer));
        let again = Raw::try_open(broker.local_addr().port(), "client", Hello::default());
        assert_eq!(again.err(), Some(Some(ConnectReturnCode::UseAnotherServer)));
        broker.refer(Referral::Here);
        assert_eq!(raw(&broker, "client").command(&["GET", "k"]), b"$1\r\nv\r\n");
        assert_eq!(service.stats().keys, 1);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_beyond_the_limit_are_told_so_or_closed() {
    timely(async {
        let (broker, _service) = start(options().max_connections(2)).await;
        let first = raw(&broker, "first");
        let silent =
            tokio::net::TcpStream::connect(broker.local_addr()).await.expect("it connects");
        let third = || Raw::try_open(broker.local_addr().port(), "third", Hello::default());
        let busy = Some(Some(ConnectReturnCode::ServerBusy));
        assert_eq!(third().err(), busy, "those that say nothing count");
        // Who keeps the places in which that is said has the others closed at once.
        let mut kept = Vec::new();
        for _ in 0..16 {
            let stream = tokio::net::TcpStream::connect(broker.local_addr()).await;
            kept.push(stream.expect("it connects"));
        }
        let is_kept = || broker.stats().connections == 18;
        while !is_kept() {
            tokio::task::yield_now().await;
        }
        assert_eq!(third().err(), Some(None));
        drop(kept);
        while third().err() != busy {}
        drop((first, silent));
        while third().is_err() {}
    })
    .await;
}

/// Whoever takes small packets only has small pages, and hears that a value is too large.
#[tokio::test(flavor = "multi_thread")]
async fn answers_are_no_larger_than_their_client_takes() {
    timely(async {
        let (broker, _service) = start(options()).await;
        let writer = client(&broker, "writer").await;
        let value = "v".repeat(1_000);
        writer.set("large", &*value).await.expect("it is set");
        for at in 0..50 {
            writer.set(format!("small {at:02}"), "v").await.expect("it is set");
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
async fn messages_beyond_the_rate_are_refused() {
    timely(async {
        let (broker, _service) = start(options().rate_limit(5)).await;
        let mut one = raw(&broker, "one");
        let reasons: Vec<_> = (0..8).map(|_| one.publish("t", false, "x")).collect();
        assert_eq!(reasons[..5], [PubAckReason::NoMatchingSubscribers; 5]);
        assert!(reasons.contains(&PubAckReason::QuotaExceeded), "{reasons:?}");
        let mut other = raw(&broker, "other");
        let reason = other.publish("t", false, "x");
        assert_eq!(reason, PubAckReason::NoMatchingSubscribers, "each has its own");
    })
    .await;
}

/// What the broker said that it takes.
fn packet_size_max(raw: &Raw) -> Option<u32> {
    raw.welcome.properties.as_ref().and_then(|properties| properties.max_packet_size)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_largest_packet_is_announced_and_held() {
    timely(async {
        let (broker, _service) = start(options().max_packet_size(10_000)).await;
        let mut raw = open(&broker, "raw", Hello::default());
        assert_eq!(packet_size_max(&raw), Some(10_000));
        let reason = raw.publish("t", false, vec![0; 9_000]);
        assert_eq!(reason, PubAckReason::NoMatchingSubscribers);
    })
    .await;
    // By default no more than what the most timid of clients accepts, and enough for a megabyte.
    timely(async {
        let (broker, _service) = start(options()).await;
        let told = packet_size_max(&open(&broker, "raw", Hello::default()));
        assert!(told.is_some_and(|told| (1_100_000..=268_435_455).contains(&told)), "{told:?}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_does_not_read_hurts_nobody_else() {
    timely(async {
        let (broker, service) = start(options()).await;
        let mut slow = raw(&broker, "slow");
        assert_eq!(slow.command(&["KEYNOTIFY", "k"]), b"+OK\r\n");
        let mut reader = raw(&broker, "reader");
        assert_eq!(reader.command(&["KEYNOTIFY", "k"]), b"+OK\r\n");
        let writer = client(&broker, "writer").await;
        let mut written = 0;
        // Until its queue is full: then it is thrown out instead of missing something without knowing.
        while service.stats().watches > 1 {
            writer.set("k", vec![b'v'; 100_000]).await.expect("the store goes on");
            reader.notification();
            written += 1;
        }
        assert!(written > 50, "it had some time");
        assert!(reader.hears_nothing_more(), "the other one has heard all");
        slow.ended();
        let mut back = raw(&broker, "slow");
        assert_eq!(back.command(&["DEL", "k"]), b":1\r\n");
    })
    .await;
}

/// A link that has subscribed as a store does.
async fn subscribed(broker: &Broker) -> EmbeddedLink {
    let mut link = broker.store_link();
    link.connect().await.expect("it runs");
    let mut store = Store::new(StoreConfig::new(1));
    store.handle_connected();
    while let Some(transmit) = store.poll_transmit() {
        link.try_send(transmit).expect("room");
    }
    assert!(
        matches!(link.next(true).await, Ok(LinkEvent::Subscribed(_, reason)) if !reason.is_error())
    );
    link
}

/// The bytes of the next request.
async fn request(link: &mut EmbeddedLink) -> Vec<u8> {
    loop {
        if let LinkEvent::Message(message) = link.next(true).await.expect("a connection") {
            let incoming: Incoming<'_> = message.as_incoming().expect("a message");
            return incoming.payload.to_vec();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn requests_wait_for_a_busy_store_and_clients_have_their_turns() {
    let mut limits = Limits::default();
    limits.waiting = 2_000;
    let broker = Broker::bind(options().limits(limits)).await.expect("it listens");
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
    let nothing = tokio::time::timeout(Duration::from_secs(120), link.next(false)).await;
    assert!(nothing.is_err(), "no message is taken while none is wanted");
    assert!(!calls.iter().any(JoinHandle::is_finished), "all of them wait");
    assert!(broker.stats().bytes < 60_000, "what waits for long waits in its client: {broker:?}");
    let late = ask(&other, 9_999);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let mut keys = Vec::new();
    for _ in 0..=calls.len() {
        keys.push(request(&mut link).await);
    }
    let is_late = |key: &Vec<u8>| key.windows(8).any(|part| part == b"key 9999");
    let at = keys.iter().position(is_late);
    assert!(at.is_some_and(|at| at <= 1), "after one of the others at most: {at:?}");
    keys.retain(|key| !is_late(key));
    assert!(keys.is_sorted(), "{keys:?}");
    keys.dedup();
    assert_eq!(keys.len(), calls.len());
    assert!(!late.is_finished(), "nobody has answered it");
}
