//! A handle apart from its requests: status, statistics, builders.

use std::time::Duration;

use statestore_loopback::Hub;
use statestore_tokio::proto::message::RequestKind;
use statestore_tokio::proto::store::Durability;
use statestore_tokio::service::{NotDurable, StoreConfig};
use statestore_tokio::{
    ConfigError, Error, LockError, LockLost, LossReason, StateStore, Status, StoreService,
    SubmitError, WatchEvent,
};
use tokio::runtime::Runtime;

use crate::late::Late;
use crate::{both, client, service};

#[tokio::test(start_paused = true)]
async fn status_reports_disconnect_and_reconnect() {
    let broker = Hub::new();
    let (service, store) = both(&broker).await;
    let (mut status, mut of_service) = (store.status(), service.status());
    assert_eq!((status.current(), of_service.current()), (Status::Online, Status::Online));
    broker.stop();
    for status in [&mut status, &mut of_service] {
        let Some(Status::Offline { last_error: Some(error) }) = status.changed().await else {
            panic!("{:?}", status.current())
        };
        assert_eq!(status.current().link_error(), Some(&error));
        assert_eq!(status.current().to_string(), format!("offline: {error}"));
    }
    broker.restart();
    while status.changed().await != Some(Status::Online) {}
    store.wait_connected().await.expect("it is");
    let mut last = store.status();
    store.shutdown().await;
    while last.changed().await.is_some() {}
    assert_eq!((last.current(), last.current().to_string()), (Status::Stopped, "stopped".into()));
}

#[tokio::test(start_paused = true)]
async fn client_counts_requests_by_verb_and_outcome() {
    let broker = Hub::new();
    let (service, store) = both(&broker).await;
    store.set("k", "v").await.expect("a version");
    assert_eq!(store.set("k", "w").if_absent().await, Ok(None));
    assert!(store.get("other").await.expect("a response").is_none());
    let mut watch = store.watch("k").await.expect("it begins");
    while watch.next().await != Some(WatchEvent::Live) {}
    let stats = store.stats();
    let set = stats.counters.of(RequestKind::Set);
    assert_eq!((set.applied, set.not_applied, set.refused()), (1, 1, 0));
    let get = stats.counters.of(RequestKind::Get);
    assert_eq!((get.applied, get.absent), (1, 1), "the watch has read its key as well");
    assert_eq!((stats.watches, stats.pending, stats.counters.connections), (1, 0, 1));
    assert_eq!(
        stats.to_string(),
        "0 pending, 1 watches; GET applied 1, GET absent 1, SET applied 1, SET not_applied 1, \
         KEYNOTIFY applied 1, connections 1",
    );
    // `behind_max_ms` may follow: it depends on when a millisecond ended.
    let text = service.stats().to_string();
    let counts = "1 keys, 2 bytes, 1 watches; GET applied 1, GET absent 1, SET applied 1, \
                  SET not_applied 1, KEYNOTIFY applied 1";
    assert!(text == counts || text.starts_with(&format!("{counts}, behind_max_ms ")), "{text}");
    assert_eq!(stats.iter().map(|of| of.value).sum::<u64>(), 6);
    service.shutdown().await;
    assert!(matches!(store.get("k").await, Err(Error::Undelivered(_))));
    assert_eq!(store.stats().counters.of(RequestKind::Get).undelivered, 1);
}

#[tokio::test(start_paused = true)]
async fn invalid_arguments_are_errors() {
    let broker = Hub::new();
    let (_service, store) = both(&broker).await;
    let forever = store.set("k", "v").expires_after(Duration::ZERO).await;
    assert_eq!(forever, Err(Error::Invalid(SubmitError::ZeroExpiry)));
    assert_eq!(store.get("k").await, Ok(None));
    let durable = StoreConfig::new(0).durability(Durability::All);
    assert_eq!(StoreService::builder().config(durable).map(drop), Err(NotDurable));
    let named = StateStore::builder().spawn(broker.link("a+b"));
    assert!(matches!(named, Err(ConfigError::ClientId(_))), "{named:?}");
}

#[tokio::test(start_paused = true)]
async fn work_under_a_lock_has_one_error_type() {
    async fn work(store: &StateStore) -> Result<(), LockError> {
        let guard = store.lock("lock").acquire().await?;
        guard.set("k", "v").await?;
        store.set("lock", "another").await?;
        let lost = guard.wait_lost().await;
        assert_eq!(lost, LockLost::Lost(LossReason::Taken));
        guard.release().await?;
        Ok(())
    }
    let broker = Hub::new();
    let (_service, store) = both(&broker).await;
    assert!(matches!(work(&store).await, Err(LockError::Lost(LockLost::Lost(_)))));
}

#[tokio::test(start_paused = true)]
async fn builder_options_take_effect() {
    let broker = Hub::new();
    let mute = Late::new(broker.store_link("statestore"), Duration::from_secs(3_600));
    let _mute = service(mute).await;
    let store = StateStore::builder()
        .timeout(Duration::from_secs(3))
        .renew_watches(None)
        .configure(|config| config.response_topic("answers/of/c"))
        .spawn(broker.link("c"))
        .expect("a client id");
    store.wait_connected().await.expect("it connects");
    let since = tokio::time::Instant::now();
    let silence = store.get("k").await.expect_err("no response");
    assert_eq!(since.elapsed(), Duration::from_secs(3));
    assert!(silence.to_string().contains("answers/of/c"), "{silence}");
}

#[test]
fn builder_uses_the_given_runtime() {
    let runtime = Runtime::new().expect("a runtime");
    let broker = Hub::new();
    let service = StoreService::builder().runtime(runtime.handle().clone());
    let service = service.spawn(broker.store_link("statestore"));
    let store = StateStore::builder().runtime(runtime.handle().clone());
    let store = store.spawn(broker.link("c")).expect("a client id");
    runtime.block_on(async {
        service.wait_connected().await.expect("it serves");
        store.set("k", "v").await.expect("a version");
    });
    assert!(store.get("k").wait().expect("a response").is_some());
}

#[test]
fn blocking_handle_waits_for_requests_locks_and_watches() {
    use statestore_tokio::blocking;
    let runtime = Runtime::new().expect("a runtime");
    let broker = Hub::new();
    let service = StoreService::builder().runtime(runtime.handle().clone());
    let service = service.spawn(broker.store_link("statestore"));
    runtime.block_on(service.wait_connected()).expect("it serves");
    let connect = |id: &str| {
        blocking::StateStore::spawn(broker.link(id), |builder| builder).expect("a client id")
    };
    let (a, b) = (connect("a"), connect("b"));
    a.wait_connected().expect("it connects");
    let mut changes = b.watch("k").expect("it begins");
    assert_eq!(changes.next(), Some(WatchEvent::Live));
    assert_eq!(changes.next_within(Duration::from_millis(1)), None);
    assert!(!changes.is_over());
    let guard = a.wait(a.lock("lock").acquire()).expect("it is free");
    let version = guard.set("k", "v").wait().expect("a version");
    let change = changes.next();
    assert!(
        matches!(&change, Some(WatchEvent::Changed { version: of, .. }) if *of == Some(version))
    );
    assert!(a.wait(b.lock("lock").try_acquire()).expect("a response").is_none());
    assert!(a.wait(guard.release()).expect("it was held"));
    assert_eq!(b.del("other").wait(), Ok(false));
    let clone = b.clone();
    b.shutdown();
    assert_eq!(clone.wait(clone.as_async().wait_closed()).reason, None);
    assert!(matches!(clone.wait_connected(), Err(Error::Closed(_))));
    while changes.next().is_some() {}
    assert!(changes.is_over());
    // The thread runs as long as a watch exists, also after the handle is dropped.
    let mut changes = a.watch("other").expect("it begins");
    drop(a);
    assert_eq!(changes.next(), Some(WatchEvent::Live));
    let c = runtime.block_on(client(broker.link("c")));
    runtime.block_on(async { c.set("other", "w").await }).expect("a version");
    assert!(matches!(changes.next(), Some(WatchEvent::Changed { .. })));
}

#[test]
fn status_is_stopped_when_the_runtime_ends() {
    let runtime = || tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let (here, there, broker) = (runtime(), runtime(), Hub::new());
    let store = here.block_on(async {
        let service = service(broker.store_link("statestore")).await;
        let builder = StateStore::builder().runtime(there.handle().clone());
        let store = builder.spawn(broker.link("a")).expect("a name");
        store.wait_connected().await.expect("it is");
        (store, service)
    });
    there.shutdown_background();
    let (store, service) = store;
    here.block_on(async {
        let mut status = store.status();
        while status.current() != Status::Stopped {
            status.changed().await;
        }
        assert!(matches!(store.wait_connected().await, Err(Error::Closed(_))));
        assert_eq!(store.wait_closed().await.reason, None);
        assert!(matches!(store.get("k").await, Err(Error::Closed(_))));
    });
    let (mut of_service, other) = (service.status(), runtime());
    drop(here);
    other.block_on(async { while of_service.changed().await.is_some() {} });
    assert_eq!(of_service.current(), Status::Stopped);
}
