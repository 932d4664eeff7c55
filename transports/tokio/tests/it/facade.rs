//! What an application sees of a handle beside its answers: status, statistics, builders.

use std::time::Duration;

use statestore_loopback::Hub;
use statestore_tokio::proto::message::CommandKind;
use statestore_tokio::proto::store::Durability;
use statestore_tokio::{
    ConfigError, Error, LockError, LockLost, LossReason, NotDurable, StateStore, Status,
    StoreConfig, StoreService, SubmitError, WatchEvent,
};
use tokio::runtime::Runtime;

use crate::late::Late;
use crate::{both, client, service};

#[tokio::test(start_paused = true)]
async fn a_disconnect_is_heard_of() {
    let broker = Hub::new();
    let (service, store) = both(&broker).await;
    let (mut status, mut of_service) = (store.status(), service.status());
    assert_eq!((status.current(), of_service.current()), (Status::Online, Status::Online));
    broker.stop();
    for status in [&mut status, &mut of_service] {
        let Some(Status::Offline { reason: Some(reason) }) = status.changed().await else {
            panic!("{:?}", status.current())
        };
        assert_eq!(status.current().reason(), Some(&*reason));
        assert_eq!(status.current().to_string(), format!("offline: {reason}"));
    }
    broker.restart();
    while status.changed().await != Some(Status::Online) {}
    store.connected().await.expect("it is");
    let mut last = store.status();
    store.shutdown().await;
    while last.changed().await.is_some() {}
    assert_eq!((last.current(), last.current().to_string()), (Status::Stopped, "stopped".into()));
}

#[tokio::test(start_paused = true)]
async fn clients_count_what_became_of_their_requests() {
    let broker = Hub::new();
    let (service, store) = both(&broker).await;
    store.set("k", "v").await.expect("a version");
    assert_eq!(store.set("k", "w").if_absent().await, Ok(None));
    assert!(store.get("other").await.expect("an answer").is_none());
    let mut watch = store.watch("k").await.expect("it begins");
    while watch.next().await != Some(WatchEvent::Live) {}
    let stats = store.stats();
    let set = stats.counters.of(CommandKind::Set);
    assert_eq!((set.applied, set.not_applied, set.refused()), (1, 1, 0));
    let get = stats.counters.of(CommandKind::Get);
    assert_eq!((get.applied, get.absent), (1, 1), "the watch has read its key too");
    assert_eq!((stats.watches, stats.pending, stats.counters.connections), (1, 0, 1));
    assert_eq!(
        stats.to_string(),
        "0 pending, 1 watches; GET applied 1, GET absent 1, SET applied 1, SET not_applied 1, KEYNOTIFY applied 1, \
         connections 1",
    );
    // How far a request's stamp was behind may follow, and depends on when a millisecond ended.
    let text = service.stats().to_string();
    let counts = "1 keys, 2 bytes, 1 watches; GET applied 1, GET absent 1, SET applied 1, SET not_applied 1, KEYNOTIFY applied 1";
    assert!(text == counts || text.starts_with(&format!("{counts}, behind_max_ms ")), "{text}");
    assert_eq!(stats.iter().map(|of| of.value).sum::<u64>(), 6);
    service.shutdown().await;
    assert!(matches!(store.get("k").await, Err(Error::Undelivered(_))));
    assert_eq!(store.stats().counters.of(CommandKind::Get).undelivered, 1);
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_meant_is_an_error() {
    let broker = Hub::new();
    let (_service, store) = both(&broker).await;
    let forever = store.set("k", "v").expires_after(Duration::ZERO).await;
    assert_eq!(forever, Err(Error::Invalid(SubmitError::ZeroExpiry)));
    assert_eq!(store.get("k").await, Ok(None));
    let durable = StoreConfig::new(0).durability(Durability::All);
    assert_eq!(StoreService::builder().config(durable).map(drop), Err(NotDurable));
    let named = StateStore::builder().spawn(broker.link("a+b"));
    assert!(matches!(named, Err(ConfigError::Topic(_))), "{named:?}");
}

#[tokio::test(start_paused = true)]
async fn what_happens_under_a_lock_has_one_error() {
    async fn work(store: &StateStore) -> Result<(), LockError> {
        let guard = store.lock("lock").acquire().await?;
        guard.set("k", "v").await?;
        store.set("lock", "another").await?;
        let lost = guard.lost().await;
        assert_eq!(lost, LockLost::Lost(LossReason::Taken));
        guard.release().await?;
        Ok(())
    }
    let broker = Hub::new();
    let (_service, store) = both(&broker).await;
    assert!(matches!(work(&store).await, Err(LockError::Lost(LockLost::Lost(_)))));
}

#[tokio::test(start_paused = true)]
async fn builders_set_what_they_say() {
    let broker = Hub::new();
    let mute = Late::new(broker.store_link("statestore"), Duration::from_secs(3_600));
    let _mute = service(mute).await;
    let store = StateStore::builder()
        .timeout(Duration::from_secs(3))
        .renew_watches(None)
        .configure(|config| config.response_topic("answers/of/c").expect("one that stores accept"))
        .spawn(broker.link("c"))
        .expect("a client id");
    store.connected().await.expect("it connects");
    let since = tokio::time::Instant::now();
    let silence = store.get("k").await.expect_err("nobody answers");
    assert_eq!(since.elapsed(), Duration::from_secs(3));
    assert!(silence.to_string().contains("answers/of/c"), "{silence}");
}

#[test]
fn a_runtime_can_be_given() {
    let runtime = Runtime::new().expect("a runtime");
    let broker = Hub::new();
    let service = StoreService::builder().runtime(runtime.handle().clone());
    let service = service.spawn(broker.store_link("statestore"));
    let store = StateStore::builder().runtime(runtime.handle().clone());
    let store = store.spawn(broker.link("c")).expect("a client id");
    runtime.block_on(async {
        service.connected().await.expect("it serves");
        store.set("k", "v").await.expect("a version");
    });
    assert!(store.get("k").wait().expect("an answer").is_some());
}

#[test]
fn code_without_async_waits() {
    use statestore_tokio::blocking;
    let runtime = Runtime::new().expect("a runtime");
    let broker = Hub::new();
    let service = StoreService::builder().runtime(runtime.handle().clone());
    let service = service.spawn(broker.store_link("statestore"));
    runtime.block_on(service.connected()).expect("it serves");
    let connect = |id: &str| {
        blocking::StateStore::spawn(broker.link(id), |builder| builder).expect("a client id")
    };
    let (a, b) = (connect("a"), connect("b"));
    let mut changes = b.watch("k").expect("it begins");
    assert_eq!(changes.next(), Some(WatchEvent::Live));
    assert_eq!(changes.next_within(Duration::from_millis(1)), None);
    assert!(!changes.is_over());
    let guard = a.wait(a.lock("lock").acquire()).expect("it is free");
    let version = guard.set("k", "v").wait().expect("a version");
    let told = changes.next();
    assert!(matches!(&told, Some(WatchEvent::Changed { version: of, .. }) if *of == Some(version)));
    assert!(a.wait(b.lock("lock").try_acquire()).expect("an answer").is_none());
    assert!(a.wait(guard.release()).expect("it was held"));
    assert_eq!(b.del("other").wait(), Ok(false));
    b.shutdown();
    while changes.next().is_some() {}
    assert!(changes.is_over());
    // The thread goes on for whoever still waits, though the handle is gone.
    let mut changes = a.watch("other").expect("it begins");
    drop(a);
    assert_eq!(changes.next(), Some(WatchEvent::Live));
    let c = runtime.block_on(client(broker.link("c")));
    runtime.block_on(async { c.set("other", "w").await }).expect("a version");
    assert!(matches!(changes.next(), Some(WatchEvent::Changed { .. })));
}

#[test]
fn a_status_does_not_outlive_its_loop() {
    let runtime = || tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let (here, there, broker) = (runtime(), runtime(), Hub::new());
    let store = here.block_on(async {
        let service = service(broker.store_link("statestore")).await;
        let builder = StateStore::builder().runtime(there.handle().clone());
        let store = builder.spawn(broker.link("a")).expect("a name");
        store.connected().await.expect("it is");
        (store, service)
    });
    there.shutdown_background();
    let (store, service) = store;
    here.block_on(async {
        let mut status = store.status();
        while status.current() != Status::Stopped {
            status.changed().await;
        }
        assert!(matches!(store.connected().await, Err(Error::Closed(_))));
        assert!(matches!(store.get("k").await, Err(Error::Closed(_))));
    });
    let (mut of_service, other) = (service.status(), runtime());
    drop(here);
    other.block_on(async { while of_service.changed().await.is_some() {} });
    assert_eq!(of_service.current(), Status::Stopped);
}
