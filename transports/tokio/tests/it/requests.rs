//! Requests without a response, and requests that expire while they are queued.

use std::future::IntoFuture as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use statestore_loopback::{Hub, HubLink, Message};
use statestore_proto::client::WatchEvent;
use statestore_proto::transport::{ReasonCode, Transmit};
use statestore_tokio::service::{StoreConfig, StoreLimits};
use statestore_tokio::{
    Connected, Error, Link, LinkError, LinkErrorKind, LinkEvent, Refusal, ServiceError, Status,
    StoreService,
};
use tokio::time::Instant;

use crate::late::Late;
use crate::{client, service};

#[tokio::test(start_paused = true)]
async fn timeout_without_any_response_on_the_connection_is_unanswered() {
    let broker = Hub::new();
    // A store that responds an hour later.
    let mute = Late::new(broker.store_link("statestore"), Duration::from_secs(3_600));
    let mute = service(mute).await;
    let store = client(broker.link("c")).await;
    let silence = store.set("k", "v").await.expect_err("no response");
    let Error::Unanswered { response_topic } = &silence else { panic!("{silence:?}") };
    assert_eq!(&**response_topic, "clients/c/services/statestore/_any_/command/invoke/response");
    assert!(silence.may_be_applied());
    let text = silence.to_string();
    assert!(text.contains("no store is subscribed") && text.contains(&**response_topic), "{text}");
    mute.shutdown().await;

    let able = service(broker.store_link("statestore")).await;
    store.set("k", "v").await.expect("a version");
    able.shutdown().await;
    let mute = Late::new(broker.store_link("statestore"), Duration::from_secs(3_600));
    let _mute = service(mute).await;
    assert_eq!(store.get("k").await, Err(Error::TimedOut));
    // Responses on another connection do not count.
    broker.disconnect("c");
    let mut silence = store.get("k").await;
    while silence == Err(Error::ConnectionLost) {
        // The request was sent before the client detected the loss.
        silence = store.get("k").await;
    }
    assert!(matches!(silence, Err(Error::Unanswered { .. })), "{silence:?}");
}

#[tokio::test(start_paused = true)]
async fn request_that_expires_while_queued_is_dropped() {
    let broker = Hub::new();
    let late = Late::new(broker.store_link("statestore"), Duration::from_millis(1_500));
    let service = service(late).await;
    let store = client(broker.link("c")).await;
    let hasty = store.set("hasty", "v").timeout(Duration::from_secs(1)).await;
    assert!(hasty.is_err());
    store
        .set("patient", "v")
        .timeout(Duration::from_secs(2))
        .await
        .expect("the delay is below the time limit");
    let stats = service.stats();
    assert_eq!((stats.keys, stats.counters.expired_requests), (1, 1));
    assert_eq!((stats.counters.executed(), stats.counters.dropped()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn error_of_a_refusal_contains_the_reason_of_the_store() {
    for explains in [true, false] {
        let broker = Hub::new();
        let limits = StoreLimits { keys_max: 1, ..StoreLimits::default() };
        let config = StoreConfig::new(7).limits(limits).explain(explains);
        let service = StoreService::builder().config(config).expect("nothing durable");
        let service = service.spawn(broker.store_link("statestore"));
        service.wait_connected().await.expect("the store connects");
        let store = client(broker.link("c")).await;
        store.set("first", "v").await.expect("the quota allows one key");
        let (refused, found) = tokio::join!(store.set("second", "v"), store.get("first"));
        assert!(found.is_ok_and(|found| found.is_some()));
        let refused = refused.expect_err("the quota allows no second key");
        let text = refused.to_string();
        let Error::Refused { error, reason } = refused else { panic!("{refused:?}") };
        assert_eq!(error.known(), Some(Refusal::QuotaExceeded));
        assert_eq!(reason.is_some(), explains, "{reason:?}");
        let shown = reason.map_or(String::new(), |reason| format!(" ({reason})"));
        assert_eq!(text, format!("the store refused: {error}{shown}"));
    }
}

#[tokio::test(start_paused = true)]
async fn limits_and_authorizer_of_the_builder_hold_in_any_order() {
    for is_config_last in [true, false] {
        let broker = Hub::new();
        let builder = StoreService::builder();
        let config = || StoreConfig::new(7);
        let builder = if is_config_last { Ok(builder) } else { builder.config(config()) };
        let builder = builder
            .expect("nothing durable")
            .limits(StoreLimits { keys_max: 1, ..StoreLimits::default() })
            .authorizer(|_, _, key| key != b"secret");
        let builder = if is_config_last { builder.config(config()) } else { Ok(builder) };
        let service = builder.expect("nothing durable").spawn(broker.store_link("statestore"));
        service.wait_connected().await.expect("the store connects");
        let store = client(broker.link("c")).await;
        store.set("first", "v").await.expect("the quota allows one key");
        for (key, refusal) in
            [("second", Refusal::QuotaExceeded), ("secret", Refusal::NotAuthorized)]
        {
            let refused = store.set(key, "v").await.expect_err(key);
            let Error::Refused { error, .. } = refused else { panic!("{refused:?}") };
            assert_eq!(error.known(), Some(refusal), "{key}");
        }
    }
}

#[test]
fn display_of_a_refusal_has_no_control_characters() {
    let error = ServiceError::Known(Refusal::NotAuthorized);
    let refused = Error::Refused { error, reason: Some("a\x1b[31m\nb".into()) };
    let text = refused.to_string();
    assert!(!text.contains(char::is_control) && text.ends_with("b)"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn undelivered_request_has_the_advice_to_start_a_store() {
    let broker = Hub::new();
    let store = client(broker.link("c")).await;
    let error = store.get("k").await.expect_err("there is no store");
    assert_eq!(error, Error::Undelivered(ReasonCode::NO_MATCHING_SUBSCRIBERS));
    let text = error.to_string();
    assert!(
        text.ends_with(
            "no store listens at this broker: start one, for example with `statestore serve`"
        ),
        "{text}"
    );
    let text = Error::Undelivered(ReasonCode::QUOTA_EXCEEDED).to_string();
    assert!(!text.contains(';'), "other reasons have no advice: {text}");
}

/// A link whose broker stops to respond when the flag is set. Until the time, bytes of an incomplete
/// packet arrive.
struct Freezable(HubLink, Arc<AtomicBool>, Option<Instant>);

impl Link for Freezable {
    type Message = Message;

    fn client_id(&self) -> &str {
        self.0.client_id()
    }

    async fn connect(&mut self) -> Result<Connected, LinkError> {
        self.0.connect().await
    }

    fn try_send(&mut self, transmit: Transmit) -> Result<(), Transmit> {
        self.0.try_send(transmit)
    }

    async fn next_event(&mut self, messages: bool) -> Result<LinkEvent<Message>, LinkError> {
        if self.1.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
        self.0.next_event(messages).await
    }

    fn last_read(&self) -> Option<Instant> {
        self.2.map(|until| until.min(Instant::now()))
    }

    async fn disconnect(&mut self) {
        self.0.disconnect().await;
    }
}

#[tokio::test(start_paused = true)]
async fn broker_that_sends_a_large_packet_slowly_is_not_silent() {
    let broker = Hub::new();
    let _service = service(broker.store_link("statestore")).await;
    let is_frozen = Arc::<AtomicBool>::default();
    let until = Instant::now() + Duration::from_secs(120);
    let store = client(Freezable(broker.link("c"), Arc::clone(&is_frozen), Some(until))).await;
    is_frozen.store(true, Ordering::Relaxed);
    let mut status = store.status();
    store.get("k").await.expect_err("no response");
    while let Some(now) = status.changed().await
        && !matches!(now, Status::Offline { last_error: Some(_) })
    {}
    // Five seconds after the last byte.
    assert_eq!((Instant::now() - until).as_secs(), 5);
}

#[tokio::test(start_paused = true)]
async fn silent_broker_is_reported_five_seconds_after_a_request_timed_out() {
    let broker = Hub::new();
    let service = service(broker.store_link("statestore")).await;
    let is_frozen = Arc::<AtomicBool>::default();
    let store = client(Freezable(broker.link("c"), Arc::clone(&is_frozen), None)).await;
    let mut changes = store.watch("k").await.expect("a watch");
    assert_eq!(changes.next().await, Some(WatchEvent::Live));
    // A broker without a store still responds.
    service.shutdown().await;
    let mute = Late::new(broker.store_link("statestore"), Duration::from_secs(3_600));
    let _mute = crate::service(mute).await;
    let mut status = store.status();
    assert_eq!(store.get("k").await, Err(Error::TimedOut));
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(status.current(), Status::Online);

    is_frozen.store(true, Ordering::Relaxed);
    let since = Instant::now();
    assert_eq!(store.get("k").await, Err(Error::TimedOut));
    let Some(Status::Offline { last_error: Some(error) }) = status.changed().await else {
        panic!("{:?}", status.current())
    };
    // A request of the watch may have timed out earlier.
    assert!(since.elapsed() <= Duration::from_secs(15), "{:?}", since.elapsed());
    assert_eq!(error.kind(), LinkErrorKind::TimedOut, "{error}");
    assert!(matches!(changes.next().await, Some(WatchEvent::Gap)));
}

#[tokio::test(start_paused = true)]
async fn silent_broker_is_reported_after_the_renewal_of_a_watch_timed_out() {
    let broker = Hub::new();
    let _service = service(broker.store_link("statestore")).await;
    let is_frozen = Arc::<AtomicBool>::default();
    let store = client(Freezable(broker.link("c"), Arc::clone(&is_frozen), None)).await;
    let mut changes = store.watch("k").await.expect("a watch");
    assert_eq!(changes.next().await, Some(WatchEvent::Live));
    is_frozen.store(true, Ordering::Relaxed);
    let since = Instant::now();
    assert_eq!(changes.next().await, Some(WatchEvent::Gap));
    // The renewal after at most 30 s, its time limit, and the probe.
    assert!(since.elapsed() <= Duration::from_secs(45), "{:?}", since.elapsed());
}

#[test]
fn request_that_its_handle_did_not_send_is_not_applied() {
    let runtime = || {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_all().start_paused(true).build().expect("a runtime")
    };
    let broker = Hub::new();
    let first = runtime();
    let mute = Late::new(broker.store_link("statestore"), Duration::from_secs(3_600));
    let (_mute, sent) =
        first.block_on(async { (service(mute).await, client(broker.link("c")).await) });
    let unsent = first.block_on(async {
        let frozen = Arc::new(AtomicBool::new(true));
        let link = Freezable(broker.link("d"), frozen, None);
        statestore_tokio::StateStore::builder().spawn(link).expect("a client id")
    });
    let mut calls = [sent, unsent].map(|store| Box::pin(store.set("k", "v").into_future()));
    for call in &mut calls {
        let soon = tokio::time::timeout;
        first
            .block_on(async { soon(Duration::from_secs(1), call).await })
            .expect_err("no response");
    }
    drop(first);
    let second = runtime();
    let [sent, unsent] = calls.map(|call| second.block_on(call).expect_err("the handle has ended"));
    assert!(matches!(sent, Error::ConnectionLost) && sent.may_be_applied(), "{sent:?}");
    assert!(matches!(unsent, Error::Closed(_)) && !unsent.may_be_applied(), "{unsent:?}");
}
