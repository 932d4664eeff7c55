//! Guarantees of every [`Link`] to a broker in the same process.
//!
//! A broker implements [`LocalBroker`] and expands
//! [`local_link_suite!`](macro@crate::local_link_suite).
#![expect(clippy::missing_panics_doc, reason = "every case panics if the link breaks its rule")]

use std::time::Duration;

use statestore_proto::client::{Client, ClientConfig, Request};
use statestore_proto::machine::{Input, Machine as _};
use statestore_proto::time::{Instant, Now, UnixTime};
use statestore_proto::topic::REQUEST;
use statestore_proto::transport::{ReasonCode, SubscribeToken, Transmit};
use statestore_tokio::{AsIncoming as _, Error, Link, LinkErrorKind, LinkEvent, StateStore};
use tokio::time::timeout;

const SOON: Duration = Duration::from_millis(50);

/// More results than a link holds back for a machine that does not read them.
const RESULTS: u64 = 70_000;

/// A broker in this process.
pub trait LocalBroker: Sized {
    /// Its links.
    type Link: Link;

    /// Largest number of results that wait to be read.
    const RESULTS_MAX: u64;

    /// Set if the broker retains requests for the next store while no store is connected.
    const KEEPS_REQUESTS: bool;

    /// Starts a broker without a store.
    fn start() -> impl Future<Output = Self>;

    /// Returns a link for a client.
    fn link(&self, client_id: &str) -> Self::Link;

    /// Returns a link for a store.
    fn store_link(&self) -> Self::Link;

    /// Closes all connections and rejects new ones.
    fn stop(&self) -> impl Future<Output = ()>;

    /// Accepts connections again.
    fn restart(&self) -> impl Future<Output = ()>;
}

fn subscribe(filter: &str, token: u64) -> Transmit {
    Transmit::Subscribe { filter: filter.into(), token: SubscribeToken::from_raw(token) }
}

/// Requests of the client `sender`: one GET for each number, which is its key. They expire after
/// the timeout, in seconds.
fn requests(numbers: impl IntoIterator<Item = usize>, timeout_secs: u64) -> Vec<Transmit> {
    let now = Now::new(Instant::default(), UnixTime::from_millis(1_696_374_425_000));
    let mut client = Client::new(ClientConfig::new("sender", [0; 8])).expect("a client id");
    client.handle(now, Input::Connected { session_present: false });
    for number in numbers {
        let request = Request::get(number.to_string());
        let request = request.timeout(Duration::from_secs(timeout_secs));
        client.submit(now, request).expect("capacity");
    }
    let mut requests = Vec::new();
    while let Some(transmit) = client.poll_transmit() {
        match transmit {
            Transmit::Subscribe { token, .. } => {
                client.handle(now, Input::Subscribed(token, ReasonCode::GRANTED_QOS_1));
            }
            request => requests.push(request),
        }
    }
    requests
}

fn send(link: &mut impl Link, transmit: Transmit) {
    assert!(link.try_send(transmit).is_ok(), "the link has capacity");
}

/// A connected link of a store that receives requests.
async fn store<B: LocalBroker>(broker: &B) -> B::Link {
    let mut store = broker.store_link();
    store.connect().await.expect("a connection");
    send(&mut store, subscribe(REQUEST, 1));
    match store.next_event(false).await {
        Ok(LinkEvent::Subscribed(token, reason)) => {
            assert_eq!(token, SubscribeToken::from_raw(1));
            assert_eq!(reason, ReasonCode::GRANTED_QOS_1);
        }
        Ok(_) => panic!("another event before the SUBACK"),
        Err(error) => panic!("{error}"),
    }
    store
}

async fn sender<B: LocalBroker>(broker: &B) -> B::Link {
    let mut sender = broker.link("sender");
    sender.connect().await.expect("a connection");
    sender
}

/// The key of the next GET.
async fn received(link: &mut impl Link) -> usize {
    loop {
        match link.next_event(true).await {
            Ok(LinkEvent::Message(message)) => {
                let incoming = message.as_incoming().expect("it is readable");
                let text = str::from_utf8(incoming.payload).expect("text");
                let key = text.trim_end().rsplit("\r\n").next().expect("a key");
                return key.parse().expect("a number");
            }
            // Clients of earlier connections.
            Ok(LinkEvent::ClientGone(_)) => {}
            Ok(_) => panic!("an event instead of a message"),
            Err(error) => panic!("{error} instead of a message"),
        }
    }
}

/// An invalid filter is refused with its reason code, and the connection stays.
pub async fn refused_subscription_has_its_reason_and_the_connection_stays<B: LocalBroker>() {
    let broker = B::start().await;
    let mut store = store(&broker).await;
    send(&mut store, subscribe("a/#/b", 2));
    match store.next_event(true).await {
        Ok(LinkEvent::Subscribed(token, reason)) => {
            assert_eq!(token, SubscribeToken::from_raw(2));
            assert_eq!(reason, ReasonCode::TOPIC_FILTER_INVALID);
        }
        Ok(_) => panic!("another event"),
        Err(error) => panic!("{error}"),
    }
    let mut sender = sender(&broker).await;
    send(&mut sender, requests([1], 10).remove(0));
    assert_eq!(received(&mut store).await, 1);
}

/// Without a store, a request ends with the reason code of its PUBACK, or waits for a store.
pub async fn request_without_a_store_is_refused_or_waits<B: LocalBroker>() {
    let broker = B::start().await;
    let client = StateStore::builder().spawn(broker.link("c1")).expect("a client id");
    client.wait_connected().await.expect("a connection");
    let outcome = client.get("k").timeout(Duration::from_secs(1)).await;
    if B::KEEPS_REQUESTS {
        assert!(matches!(outcome, Err(Error::Unanswered { .. })), "{outcome:?}");
    } else {
        let refused = Err(Error::Undelivered(ReasonCode::NO_MATCHING_SUBSCRIBERS));
        assert_eq!(outcome, refused);
    }
}

/// Of two links with one client id, the later receives the messages and the earlier ends.
pub async fn later_link_takes_over_the_client_id<B: LocalBroker>() {
    let broker = B::start().await;
    let mut earlier = store(&broker).await;
    let mut later = store(&broker).await;
    let Err(error) = earlier.next_event(true).await else { panic!("the broker has closed it") };
    assert_eq!(error.kind(), LinkErrorKind::TakenOver, "{error}");
    let mut sender = sender(&broker).await;
    send(&mut sender, requests([1], 10).remove(0));
    assert_eq!(received(&mut later).await, 1);
    assert!(earlier.next_event(true).await.is_err(), "it stays closed");
}

/// Unread requests of an earlier connection are redelivered if the broker keeps them, and dropped
/// otherwise.
pub async fn unread_requests_are_redelivered_or_dropped<B: LocalBroker>() {
    let broker = B::start().await;
    let mut store_link = store(&broker).await;
    let mut sender = sender(&broker).await;
    let [old, new] = <[_; 2]>::try_from(requests([1, 2], 10)).expect("two");
    send(&mut sender, old);
    store_link.connect().await.expect("a connection");
    send(&mut store_link, subscribe(REQUEST, 2));
    let subscribed = store_link.next_event(false).await;
    assert!(matches!(subscribed, Ok(LinkEvent::Subscribed(..))));
    send(&mut sender, new);
    if B::KEEPS_REQUESTS {
        assert_eq!(received(&mut store_link).await, 1);
    }
    assert_eq!(received(&mut store_link).await, 2);
    assert!(timeout(SOON, store_link.next_event(true)).await.is_err(), "nothing else");
}

/// `next` may be dropped at any time, and returns no message while none is wanted.
pub async fn dropped_wait_loses_nothing<B: LocalBroker>() {
    let broker = B::start().await;
    let mut store = store(&broker).await;
    let mut sender = sender(&broker).await;
    for (number, request) in requests(0..200, 10).into_iter().enumerate() {
        send(&mut sender, request);
        let pause = Duration::from_micros(u64::try_from(number % 7).expect("small") * 20);
        assert!(timeout(pause, store.next_event(false)).await.is_err(), "no message was wanted");
        assert_eq!(received(&mut store).await, number);
        // The PUBACK.
        let published = sender.next_event(true).await;
        assert!(matches!(published, Ok(LinkEvent::Published(_, ReasonCode::SUCCESS))));
    }
}

/// Results that the machine does not read are bounded: the link gives packets back until there is
/// capacity again, or ends.
pub async fn unread_results_are_bounded<B: LocalBroker>() {
    let broker = B::start().await;
    let mut link = broker.link("c1");
    link.connect().await.expect("a connection");
    let refused = (1..=RESULTS).find_map(|token| link.try_send(subscribe("t", token)).err());
    let mut results = 0;
    let has_ended = loop {
        match link.next_event(true).await {
            Ok(LinkEvent::Subscribed(token, ReasonCode::GRANTED_QOS_1)) => {
                results += 1;
                assert_eq!(token, SubscribeToken::from_raw(results));
            }
            Ok(LinkEvent::Writable) => break false,
            Ok(_) => panic!("another event"),
            Err(_) => break true,
        }
    };
    assert!(results <= B::RESULTS_MAX, "{results}");
    assert_eq!(refused.is_none(), has_ended);
    if let Some(packet) = refused {
        send(&mut link, packet);
        assert!(matches!(link.next_event(true).await, Ok(LinkEvent::Subscribed(..))));
    }
}

/// Without a connection a link accepts packets, drops them and reports an error.
pub async fn link_without_a_connection_reports_it<B: LocalBroker>() {
    let broker = B::start().await;
    let mut store_link = broker.store_link();
    for _ in 0..2 {
        send(&mut store_link, subscribe(REQUEST, 7));
        let error = store_link.next_event(true).await.err().expect("no connection");
        assert!(error.is_transient(), "{error}");
        store_link = store(&broker).await;
        store_link.disconnect().await;
    }
}

/// A stopped broker ends connections and rejects new ones, until it is restarted.
pub async fn stopped_broker_is_retried<B: LocalBroker>() {
    let broker = B::start().await;
    let mut store_link = store(&broker).await;
    broker.stop().await;
    let error = store_link.next_event(true).await.err().expect("it has stopped");
    assert!(error.is_transient(), "{error}");
    let error = store_link.connect().await.expect_err("it has stopped");
    assert!(error.is_transient(), "{error}");
    broker.restart().await;
    drop(store_link);
    let mut store = store(&broker).await;
    let mut sender = sender(&broker).await;
    send(&mut sender, requests([1], 10).remove(0));
    assert_eq!(received(&mut store).await, 1);
}

/// A request that expires while it is queued for the store is not delivered. The macro must name
/// this case for brokers whose time advances.
pub async fn request_expired_in_the_queue_is_not_delivered<B: LocalBroker>() {
    let broker = B::start().await;
    let mut store = store(&broker).await;
    let mut sender = sender(&broker).await;
    for (number, timeout_secs) in [(1, 1), (2, 600)] {
        send(&mut sender, requests([number], timeout_secs).remove(0));
    }
    // The machine accepts no message for longer than the first request is valid.
    let busy = timeout(Duration::from_millis(1_200), store.next_event(false)).await;
    assert!(busy.is_err(), "no message was wanted");
    assert_eq!(received(&mut store).await, 2);
    assert!(timeout(SOON, store.next_event(true)).await.is_err(), "nothing else");
}

/// One test for each case, for a [`LocalBroker`].
#[macro_export]
macro_rules! local_link_suite {
    ($broker:ty) => {
        $crate::local_link_suite! { $broker:
            refused_subscription_has_its_reason_and_the_connection_stays
            request_without_a_store_is_refused_or_waits
            later_link_takes_over_the_client_id
            unread_requests_are_redelivered_or_dropped
            dropped_wait_loses_nothing
            unread_results_are_bounded
            link_without_a_connection_reports_it
            stopped_broker_is_retried
        }
    };
    ($broker:ty: $($case:ident)+) => {
        $(
            #[tokio::test(flavor = "multi_thread")]
            async fn $case() {
                $crate::process::timely($crate::links::local_suite::$case::<$broker>()).await;
            }
        )+
    };
}
