//! Guarantees of every [`Link`] over an MQTT broker, against a scripted broker.
//!
//! An adapter implements [`Adapter`] and expands [`link_suite!`](macro@crate::link_suite).
#![expect(clippy::missing_panics_doc, reason = "every case panics if the link breaks its rule")]

mod packets;

use std::time::Duration;

use statestore_proto::topic::REQUEST;
use statestore_proto::transport::ReasonCode;
use statestore_tokio::{
    AsIncoming as _, Backoff, CloseReason, Error, Link, LinkErrorKind, LinkEvent, Options, Proxy,
    StateStore, Status, StoreService, Transport,
};
use tokio::time::{Instant, timeout};

use self::packets::{filter, message, set_request};
use crate::brokers::scripted::{self, Peer, Scripted, Welcome};
use crate::links::{failover, gets};
use crate::process::HANGS;
use crate::wire::packets::{Packet, Publish, Qos};

const SOON: Duration = Duration::from_millis(300);

/// Topic of the claims of the store.
const CLAIM: &str = "clients/statestore/services/statestore/instance";

/// Links of one adapter.
pub trait Adapter {
    /// Their type.
    type Link: Link;

    /// Set if the reason of a PUBACK below 0x80 is reported: *no matching subscribers*.
    const REPORTS_SUCCESS_REASONS: bool;

    /// A link for an application.
    fn client(options: Options) -> Self::Link;

    /// A link for a store, which claims.
    fn store(options: Options) -> Self::Link;

    /// A link for a store without a claim.
    fn store_without_claim(options: Options) -> Self::Link;
}

/// A client whose requests wait as long as a test, so that a busy machine ends none of them.
fn client<A: Adapter>(options: Options) -> StateStore {
    StateStore::builder().timeout(HANGS).spawn(A::client(options)).expect("a client id")
}

fn patient<A: Adapter>(options: Options, backoff: Backoff) -> StateStore {
    let builder = StateStore::builder().timeout(HANGS).backoff(backoff);
    builder.spawn(A::client(options)).expect("a client id")
}

fn service<A: Adapter>(options: Options) -> StoreService {
    let backoff = Backoff { first: Duration::from_millis(5), longest: Duration::from_millis(20) };
    StoreService::builder().backoff(backoff).spawn(A::store_without_claim(options))
}

/// A link and its connection, seen from the broker.
async fn connected<L: Link>(broker: &Scripted, mut link: L) -> (L, Peer) {
    let (connected, peer) = tokio::join!(link.connect(), broker.welcome(Welcome::default()));
    connected.expect("a connection");
    (link, peer)
}

/// The topic and the payload of the next message.
async fn received(link: &mut impl Link) -> (String, String) {
    match link.next_event(true).await {
        Ok(LinkEvent::Message(message)) => {
            let incoming = message.as_incoming().expect("it is readable");
            let payload = String::from_utf8(incoming.payload.to_vec()).expect("text");
            (incoming.topic.to_owned(), payload)
        }
        Ok(_) => panic!("an event instead of a message"),
        Err(error) => panic!("{error} instead of a message"),
    }
}

/// Requests in flight end with their connection, and the next connection may allow fewer.
pub async fn requests_of_a_lost_connection_end_and_the_next_may_allow_less<A: Adapter>() {
    let broker = Scripted::start().await;
    let store = client::<A>(broker.options("c1"));
    let mut peer = broker.welcome(Welcome::default()).await;
    let mut calls = gets(&store, 256);
    for _ in 0..256 {
        let request = peer.publish().await;
        if request.pkid % 3 == 0 {
            peer.puback(request.pkid, 0).await;
        }
    }
    drop(peer);
    while let Some(outcome) = calls.join_next().await {
        assert_eq!(outcome.expect("an outcome"), Err(Error::ConnectionLost));
    }

    let welcome = Welcome { receive_maximum: Some(20), ..Welcome::default() };
    let mut peer = broker.welcome(welcome).await;
    let mut calls = gets(&store, 300);
    let mut open: Vec<Publish> = Vec::new();
    for _ in 0..300 {
        if open.len() == 20 {
            // The maximum is in flight: nothing follows until one is acknowledged.
            assert!(timeout(SOON / 30, peer.publish()).await.is_err());
            for request in open.drain(..) {
                peer.puback(request.pkid, 0).await;
                peer.answer(&request).await;
            }
        }
        open.push(peer.publish().await);
    }
    for request in open.drain(..) {
        peer.puback(request.pkid, 0).await;
        peer.answer(&request).await;
    }
    while let Some(outcome) = calls.join_next().await {
        assert_eq!(outcome.expect("an outcome"), Ok(None));
    }
}

/// A packet beyond the Maximum Packet Size is refused here, and the connection stays.
pub async fn packet_beyond_the_maximum_is_refused_and_the_connection_stays<A: Adapter>() {
    let broker = Scripted::start().await;
    let store = client::<A>(broker.options("c1"));
    let welcome = Welcome { max_packet_size: Some(600), ..Welcome::default() };
    let peer = broker.welcome(welcome).await;
    let served = tokio::spawn(peer.serve());
    assert_eq!(store.get("k").await, Ok(None));
    let too_large = store.set("k", vec![0; 600]).await;
    assert_eq!(too_large, Err(Error::Undelivered(ReasonCode::PACKET_TOO_LARGE)));
    assert_eq!(store.get("k").await, Ok(None), "the same connection goes on");
    assert!(!served.is_finished());
    assert!(broker.receives_no_connection(SOON).await);
}

/// DISCONNECT 0x8e ends a handle, with its reason.
pub async fn takeover_ends_the_link<A: Adapter>() {
    let broker = Scripted::start().await;
    let store = client::<A>(broker.options("c1"));
    let mut peer = broker.welcome(Welcome::default()).await;
    let call = tokio::spawn(store.get("k").into_future());
    peer.publish().await;
    peer.disconnect(0x8e).await;
    assert_eq!(call.await.expect("an outcome"), Err(Error::ConnectionLost));
    let Err(Error::Closed(closed)) = store.get("k").await else { panic!("it is over") };
    assert!(matches!(closed.reason, Some(CloseReason::TakenOver(_))));
    assert!(broker.receives_no_connection(SOON).await);
}

/// CONNACK 0x86 ends a handle, with its reason.
pub async fn wrong_credentials_end_the_link<A: Adapter>() {
    let broker = Scripted::start().await;
    let store = client::<A>(broker.options("c1").credentials("me", "wrong"));
    let mut peer = broker.accept().await;
    let Packet::Connect(connect, _, Some(login)) = &peer.connect else { panic!("credentials") };
    assert!(connect.clean_start);
    assert_eq!((&*login.username, &*login.password), ("me", "wrong"));
    peer.send(&[0x20, 3, 0, 0x86, 0]).await;
    let Err(Error::Closed(closed)) = store.wait_connected().await else { panic!("it is over") };
    let Some(CloseReason::Credentials(error)) = closed.reason else { panic!("{closed}") };
    assert_eq!(error.address().map(|address| address.port), Some(broker.port()));
    assert!(broker.receives_no_connection(SOON).await);
}

/// WebSocket, Unix sockets, proxies and service account tokens end the link before a connection,
/// for adapters of libraries without them.
pub async fn options_beyond_tcp_and_passwords_are_unsupported<A: Adapter>() {
    let options = || Options::new("c", "127.0.0.1", 1);
    for (options, feature) in [
        (options().transport(Transport::websocket("/mqtt")), "WebSocket"),
        (options().service_account_token("/no/such/token"), "service account tokens"),
        (Options::new("c", "/run/mosquitto.sock", 0), "Unix sockets"),
        (options().proxy(Proxy::new("127.0.0.1", 1)), "proxies"),
    ] {
        let error = A::client(options).connect().await.expect_err(feature);
        assert_eq!((error.kind(), error.is_transient()), (LinkErrorKind::Unsupported, false));
        assert!(error.to_string().contains(feature), "{error}");
    }
}

/// CONNACK 0x89 and a connection closed before the CONNACK are retried.
pub async fn busy_broker_is_retried<A: Adapter>() {
    let broker = Scripted::start().await;
    let store = client::<A>(broker.options("c1"));
    broker.accept().await.send(&[0x20, 3, 0, 0x89, 0]).await;
    drop(broker.accept().await);
    let peer = broker.welcome(Welcome::default()).await;
    tokio::spawn(peer.serve());
    assert_eq!(store.get("k").await, Ok(None));
}

/// Requests in every queue end with the connection, and later ones are answered.
pub async fn queued_requests_end_with_the_connection<A: Adapter>() {
    let broker = Scripted::start().await;
    let options = broker.options("c1").max_in_flight(2).max_queued_packets(3);
    let store = client::<A>(options);
    let mut peer = broker.welcome(Welcome::default()).await;
    let mut calls = gets(&store, 100);
    peer.publish().await;
    peer.publish().await;
    drop(peer);
    let peer = broker.welcome(Welcome::default()).await;
    tokio::spawn(peer.serve());
    let (mut unknown, mut answered) = (0, 0);
    while let Some(outcome) = calls.join_next().await {
        match outcome.expect("an outcome") {
            Ok(None) => answered += 1,
            Err(Error::ConnectionLost) => unknown += 1,
            other => panic!("{other:?}"),
        }
    }
    assert!((2..=6).contains(&unknown), "{unknown} of those offered, {answered} others");
    assert_eq!(unknown + answered, 100);
}

/// A lost connection returns packets, also before `next_event` has reported the loss. For adapters
/// whose library detects a loss in a separate task or thread.
pub async fn lost_connection_returns_packets<A: Adapter>() {
    let broker = Scripted::start().await;
    let options = broker.options("c1").max_in_flight(1_000).max_queued_packets(1_000);
    let (mut link, peer) = connected(&broker, A::client(options)).await;
    drop(peer);
    // Fewer packets than fit into the queue.
    for token in 0..900 {
        if link.try_send(packets::subscribe("t", token)).is_err() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    panic!("the link accepts packets for a lost connection");
}

/// A burst beyond every queue is answered.
pub async fn requests_beyond_every_queue_do_not_stall<A: Adapter>() {
    let broker = Scripted::start().await;
    let store = client::<A>(broker.options("c1").max_in_flight(512).max_queued_packets(10));
    // The server sends no CONNACK before all of them wait.
    let mut calls = gets(&store, 10_000);
    tokio::task::yield_now().await;
    let peer = broker.welcome(Welcome::default()).await;
    tokio::spawn(peer.serve());
    while let Some(outcome) = calls.join_next().await {
        assert_eq!(outcome.expect("an outcome"), Ok(None));
    }
}

/// Queues of one packet do not stall.
pub async fn smallest_queues_do_not_stall<A: Adapter>() {
    let broker = Scripted::start().await;
    let store = client::<A>(broker.options("c1").max_in_flight(1).max_queued_packets(1));
    let peer = broker.welcome(Welcome::default()).await;
    tokio::spawn(peer.serve());
    let mut calls = gets(&store, 1_500);
    while let Some(outcome) = calls.join_next().await {
        assert_eq!(outcome.expect("an outcome"), Ok(None));
    }
}

/// A shutdown sends a DISCONNECT, ends open requests, and no connection follows.
pub async fn shutdown_disconnects_for_good<A: Adapter>() {
    let broker = Scripted::start().await;
    let store = client::<A>(broker.options("c1"));
    let mut peer = broker.welcome(Welcome::default()).await;
    let call = tokio::spawn(store.get("k").into_future());
    let request = peer.publish().await;
    peer.puback(request.pkid, 0).await;
    let goodbye = tokio::spawn(store.shutdown());
    assert!(matches!(peer.read().await, Some(Packet::Disconnect(_))));
    drop(peer);
    goodbye.await.expect("it returns");
    assert!(call.await.expect("an outcome").is_err());
    assert!(broker.receives_no_connection(SOON).await);
}

/// A broker that acknowledges nothing does not delay the goodbye.
pub async fn silent_broker_does_not_delay_the_goodbye<A: Adapter>() {
    let broker = Scripted::start().await;
    let store = client::<A>(broker.options("c1").max_in_flight(1).max_queued_packets(2));
    let mut peer = broker.welcome(Welcome::default()).await;
    let mut calls = gets(&store, 20);
    peer.publish().await;
    // The link waits a second for the broker.
    timeout(HANGS / 4, store.shutdown()).await.expect("the goodbye is bounded");
    while let Some(outcome) = calls.join_next().await {
        assert!(outcome.expect("an outcome").is_err());
    }
}

/// A refused SUBSCRIBE is the reason in the status, and is retried on the next connection.
pub async fn refused_subscription_is_reported_and_retried<A: Adapter>() {
    scripted::refused_subscription_is_retried(client::<A>).await;
}

/// The reason code of a PUBACK reaches the caller.
pub async fn refused_publishes_are_told_apart<A: Adapter>() {
    let broker = Scripted::start().await;
    let store = client::<A>(broker.options("c1"));
    let mut peer = broker.welcome(Welcome::default()).await;
    let mut answered = vec![0];
    let mut refused = vec![0x87, 0x97, 0x80, 0x83, 0x90, 0x99];
    if A::REPORTS_SUCCESS_REASONS { &mut refused } else { &mut answered }.push(0x10);
    for reason in refused {
        let call = tokio::spawn(store.get("k").into_future());
        let request = peer.publish().await;
        peer.puback(request.pkid, reason).await;
        let outcome = call.await.expect("an outcome");
        assert_eq!(outcome, Err(Error::Undelivered(ReasonCode(reason))));
    }
    for reason in answered {
        let call = tokio::spawn(store.get("k").into_future());
        let request = peer.publish().await;
        peer.puback(request.pkid, reason).await;
        peer.answer(&request).await;
        assert_eq!(call.await.expect("an outcome"), Ok(None));
    }
}

/// PUBACKs are paired with their requests in any order.
pub async fn acknowledgements_arrive_in_any_order<A: Adapter>() {
    let broker = Scripted::start().await;
    let store = client::<A>(broker.options("c1"));
    let mut peer = broker.welcome(Welcome::default()).await;
    let first = tokio::spawn(store.get("first").into_future());
    let held = peer.publish().await;
    let second = tokio::spawn(store.get("second").into_future());
    let refused = peer.publish().await;
    peer.puback(refused.pkid, 0x87).await;
    let outcome = second.await.expect("an outcome");
    assert_eq!(outcome, Err(Error::Undelivered(ReasonCode::NOT_AUTHORIZED)));
    peer.puback(held.pkid, 0).await;
    peer.answer(&held).await;
    assert_eq!(first.await.expect("an outcome"), Ok(None));
}

/// With the option for it, a handle reconnects after a takeover.
pub async fn takeover_is_retried_on_request<A: Adapter>() {
    let broker = Scripted::start().await;
    let _store = client::<A>(broker.options("c1").retry_after_takeover(true));
    for reason in [0x8e, 0x98, 0x95, 0x8b] {
        broker.welcome(Welcome::default()).await.disconnect(reason).await;
    }
    broker.welcome(Welcome::default()).await;
}

/// Every other DISCONNECT is followed by a new connection. This includes 0x87, which any requester
/// can provoke with its response topic.
pub async fn other_disconnects_are_followed_by_a_connection<A: Adapter>() {
    let broker = Scripted::start().await;
    let store = client::<A>(broker.options("c1"));
    for reason in [0x95, 0x98, 0x8b, 0x87] {
        let mut peer = broker.welcome(Welcome::default()).await;
        let call = tokio::spawn(store.get("k").into_future());
        peer.publish().await;
        peer.disconnect(reason).await;
        assert_eq!(call.await.expect("an outcome"), Err(Error::ConnectionLost), "{reason:#x}");
    }
    let peer = broker.welcome(Welcome::default()).await;
    tokio::spawn(peer.serve());
    assert_eq!(store.get("k").await, Ok(None));
}

/// DISCONNECT 0x87 does not end a store.
pub async fn not_authorized_does_not_end_a_store<A: Adapter>() {
    let broker = Scripted::start().await;
    let service = service::<A>(broker.options("statestore"));
    for _ in 0..3 {
        let mut peer = broker.welcome(Welcome::default()).await;
        assert_eq!(filter(&mut peer).await, REQUEST);
        peer.disconnect(0x87).await;
    }
    let mut peer = broker.welcome(Welcome::default()).await;
    assert_eq!(filter(&mut peer).await, REQUEST);
    assert!(!matches!(service.status().current(), Status::Failed(_)));
}

/// A message that is queued in the link has the time of its arrival, so a store can drop an expired
/// request.
pub async fn queued_message_keeps_its_arrival_time<A: Adapter>() {
    let broker = Scripted::start().await;
    let (link, mut peer) =
        connected(&broker, A::store_without_claim(broker.options("statestore"))).await;
    let mut link = link;
    peer.deliver(set_request(1, Some(1))).await;
    peer.deliver(set_request(2, Some(600))).await;
    // The machine accepts no message for longer than the first request is valid.
    let busy = timeout(Duration::from_millis(1_200), link.next_event(false)).await;
    assert!(busy.is_err(), "no message was wanted");
    let wanted = Instant::now();
    for expiry in [1, 600] {
        let Ok(LinkEvent::Message(message)) = link.next_event(true).await else {
            panic!("a message")
        };
        let incoming = message.as_incoming().expect("it is readable");
        assert_eq!(incoming.message_expiry, Some(expiry));
        // A busy machine can read it late, but not later than the machine wants it.
        let received = message.received().expect("its arrival is known");
        assert!(received < wanted, "it is not the time at which the machine wanted it");
    }
}

/// Nothing of a lost connection is reported on the next one.
pub async fn messages_of_a_lost_connection_are_dropped<A: Adapter>() {
    let broker = Scripted::start().await;
    let (mut link, mut peer) = connected(&broker, A::client(broker.options("c1"))).await;
    peer.deliver(message("old", 1)).await;
    // A link may read only while it is polled.
    tokio::select! {
        acknowledged = peer.read() => {
            assert!(matches!(acknowledged, Some(Packet::PubAck(_))), "{acknowledged:?}");
        }
        _ = link.next_event(false) => panic!("no message was wanted"),
    }
    let (again, mut peer) = tokio::join!(link.connect(), broker.welcome(Welcome::default()));
    again.expect("a connection");
    peer.deliver(message("new", 1)).await;
    assert_eq!(received(&mut link).await.0, "new");
}

/// `next` may be dropped at any time, and returns no message while none is wanted.
pub async fn dropped_wait_loses_nothing<A: Adapter>() {
    let broker = Scripted::start().await;
    let (mut link, mut peer) = connected(&broker, A::client(broker.options("c1"))).await;
    for id in 1..=200 {
        peer.deliver(message("t", id)).await;
        // Sometimes before it arrives, sometimes after.
        let pause = Duration::from_micros(u64::from(id % 7) * 20);
        assert!(timeout(pause, link.next_event(false)).await.is_err(), "no message was wanted");
        assert_eq!(received(&mut link).await.1, id.to_string());
    }
}

/// A request completes behind a flood at QoS 0 that exceeds every queue.
pub async fn flood_at_qos_0_does_not_stop_requests<A: Adapter>() {
    let broker = Scripted::start().await;
    let store = client::<A>(broker.options("c1").receive_maximum(16));
    let mut peer = broker.welcome(Welcome::default()).await;
    for _ in 0..20_000 {
        peer.deliver(Publish::new("flood", Qos::AtMostOnce, vec![0; 16], None)).await;
    }
    tokio::spawn(peer.serve());
    assert_eq!(store.get("k").await, Ok(None));
}

/// A store reads and publishes its claim before anything else, unless the broker retains nothing.
pub async fn store_claims_where_the_broker_retains<A: Adapter>() {
    for (retain_available, first) in [(None, CLAIM), (Some(1), CLAIM), (Some(0), REQUEST)] {
        let broker = Scripted::start().await;
        let _service = StoreService::builder().spawn(A::store(broker.options("statestore")));
        let welcome = Welcome { retain_available, ..Welcome::default() };
        let mut peer = broker.welcome(welcome).await;
        assert_eq!(filter(&mut peer).await, first, "{retain_available:?}");
    }
}

/// A store whose connection is lost twice while it claims serves the next one without a claim.
pub async fn store_lost_twice_while_claiming_serves_once_without<A: Adapter>() {
    let broker = Scripted::start().await;
    let _service = StoreService::builder().spawn(A::store(broker.options("statestore")));
    for expected in [CLAIM, CLAIM, REQUEST, CLAIM] {
        let mut peer = broker.welcome(Welcome::default()).await;
        assert_eq!(filter(&mut peer).await, expected);
    }
}

/// A store that finds the claim of a later store ends and reports that.
pub async fn store_replaced_by_a_later_one_ends<A: Adapter>() {
    let broker = Scripted::start().await;
    let service = StoreService::builder().spawn(A::store(broker.options("statestore")));
    let mut retained: Option<Publish> = None;
    for is_replaced in [false, true] {
        let mut peer = broker.welcome(Welcome::default()).await;
        while retained.is_none() || is_replaced {
            match peer.read().await {
                Some(Packet::Subscribe(subscribe)) => {
                    peer.grant(subscribe.pkid, 0).await;
                    if let Some(claim) = retained.clone().filter(|_| is_replaced) {
                        peer.deliver(claim).await;
                    }
                }
                // The marker returns to its sender.
                Some(Packet::Publish(marker)) if !marker.retain => {
                    peer.deliver(Publish::new(CLAIM, Qos::AtMostOnce, marker.payload, None)).await;
                }
                Some(Packet::Publish(claim)) => {
                    let text = String::from_utf8(claim.payload.to_vec()).expect("text");
                    let (number, _) = text.split_once(':').expect("a claim");
                    let later = number.parse::<u64>().expect("a number") + 1;
                    let later = format!("{later}:00000000000000ff");
                    let mut later = Publish::new(CLAIM, Qos::AtMostOnce, later, None);
                    later.retain = true;
                    retained = Some(later);
                }
                Some(_) => {}
                None => break,
            }
        }
    }
    let closed = timeout(HANGS, service.wait_closed()).await.expect("it ends");
    assert!(matches!(closed.reason, Some(CloseReason::TakenOver(_))), "{closed}");
}

/// Without a broker, a request names the reason for which it was not sent.
pub async fn unsent_request_names_the_reason<A: Adapter>() {
    let broker = Scripted::start().await;
    let options = broker.options("c1");
    let port = broker.port();
    drop(broker);
    let store = client::<A>(options);
    let mut status = store.status();
    while !matches!(status.current(), Status::Offline { last_error: Some(_) }) {
        status.changed().await.expect("it retries");
    }
    let error = store.get("k").timeout(SOON).await.expect_err("no broker");
    let text = error.to_string();
    let Error::NotSent { last_error: Some(last_error) } = error else { panic!("{error:?}") };
    assert_eq!(last_error.kind(), LinkErrorKind::Unreachable);
    assert!(text.starts_with("not sent: no connection: "), "{text}");
    assert!(text.ends_with(&format!("(at 127.0.0.1:{port})")), "{text}");
}

/// The first of several addresses that accepts the client is used.
pub async fn first_address_that_accepts_is_used<A: Adapter>() {
    failover::first_accepting_address_is_used(patient::<A>).await;
}

/// A lost connection fails over and back.
pub async fn lost_connection_fails_over_and_back<A: Adapter>() {
    failover::lost_connection_fails_over_and_back(patient::<A>).await;
}

/// A broker that names another server is tried last.
pub async fn client_sent_elsewhere_tries_the_next_address<A: Adapter>() {
    failover::redirected_client_tries_the_next_address(patient::<A>).await;
}

/// A wrong password ends the handle, and no other address sees it.
pub async fn wrong_password_is_tried_at_one_address<A: Adapter>() {
    failover::wrong_password_ends_the_client(patient::<A>).await;
}

/// If no address accepts the client, the status names each with its reason.
pub async fn each_failed_address_is_named<A: Adapter>() {
    failover::status_names_each_failed_address(patient::<A>).await;
}

/// One test for each case, for an [`Adapter`].
#[macro_export]
macro_rules! link_suite {
    ($adapter:ty) => {
        $crate::link_suite! { $adapter:
            requests_of_a_lost_connection_end_and_the_next_may_allow_less
            packet_beyond_the_maximum_is_refused_and_the_connection_stays
            takeover_ends_the_link
            wrong_credentials_end_the_link
            busy_broker_is_retried
            queued_requests_end_with_the_connection
            requests_beyond_every_queue_do_not_stall
            smallest_queues_do_not_stall
            shutdown_disconnects_for_good
            silent_broker_does_not_delay_the_goodbye
            refused_subscription_is_reported_and_retried
            refused_publishes_are_told_apart
            acknowledgements_arrive_in_any_order
            takeover_is_retried_on_request
            other_disconnects_are_followed_by_a_connection
            not_authorized_does_not_end_a_store
            queued_message_keeps_its_arrival_time
            messages_of_a_lost_connection_are_dropped
            dropped_wait_loses_nothing
            flood_at_qos_0_does_not_stop_requests
            store_claims_where_the_broker_retains
            store_lost_twice_while_claiming_serves_once_without
            store_replaced_by_a_later_one_ends
            unsent_request_names_the_reason
            first_address_that_accepts_is_used
            lost_connection_fails_over_and_back
            client_sent_elsewhere_tries_the_next_address
            wrong_password_is_tried_at_one_address
            each_failed_address_is_named
        }
    };
    ($adapter:ty: $($case:ident)+) => {
        $(
            #[tokio::test(flavor = "multi_thread")]
            async fn $case() {
                $crate::process::timely($crate::links::suite::$case::<$adapter>()).await;
            }
        )+
    };
}
