//! A handle next to the application and the SDK's own client of the store, on one session.

use std::time::Duration;

use azure_iot_operations_mqtt::control_packet::{
    PublishProperties, QoS, RetainOptions, SubscribeProperties, TopicFilter, TopicName,
};
use azure_iot_operations_protocol::common::hybrid_logical_clock::HybridLogicalClock;
use azure_iot_operations_services::state_store::{Operation, SetOptions};
use statestore_azure_mqtt::{SessionLink, StateStore, StoreService, Watch};
use statestore_proto::client::WatchEvent;
use statestore_proto::hlc::Hlc;
use statestore_sdk_tests::{RunningSession, TIMEOUT, settings};
use statestore_server::Broker;
use statestore_testkit::brokers::Mosquitto;
use statestore_testkit::process::timely;

/// A broker with a store.
async fn serve() -> (Broker, StoreService) {
    let options = statestore_server::Options::new(([127, 0, 0, 1], 0));
    let (broker, service) = statestore_server::serve(options).await.expect("a free port");
    service.wait_connected().await.expect("the store connects");
    (broker, service)
}

async fn handle(session: &RunningSession) -> StateStore {
    let link = SessionLink::new(session.client.clone(), session.monitor.clone());
    let store = StateStore::builder().spawn(link).expect("a client id");
    store.wait_connected().await.expect("the session connects");
    store
}

/// Converts a clock value of the SDK.
fn order(clock: &HybridLogicalClock) -> Hlc {
    clock.to_string().parse().expect("a clock")
}

/// Waits for the next change.
async fn change(watch: &mut Watch) -> Option<Vec<u8>> {
    loop {
        match watch.next().await.expect("the watch continues") {
            WatchEvent::Changed { value, .. } => return value.map(|value| value.to_vec()),
            WatchEvent::Gap => panic!("the connection was lost"),
            _ => {}
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_of_the_sdk_and_handle_have_the_same_results() {
    timely(async {
        let (broker, service) = serve().await;
        let session = RunningSession::start("app", broker.local_addr().port());
        let (theirs, ours) = (session.store(), handle(&session).await);
        let version = ours.set("k", "1").await.expect("set");
        let found = theirs.get(b"k".into(), TIMEOUT).await.expect("get");
        assert_eq!(found.response.as_deref(), Some(&b"1"[..]));
        assert_eq!(order(&found.version.expect("a version")), *version.hlc());
        let set = theirs.set(b"k".into(), b"2".into(), TIMEOUT, None, SetOptions::default()).await;
        let version = set.expect("set").version.expect("a version");
        let found = ours.get("k").await.expect("get").expect("it was set");
        assert_eq!(found.value, "2");
        assert_eq!(*found.version.expect("a version").hlc(), order(&version));
        assert_eq!(theirs.del(b"k".into(), None, TIMEOUT).await.expect("del").response, 1);
        assert_eq!(ours.del("k").await, Ok(false));
        assert_eq!(ours.get("k").await, Ok(None));
        assert_eq!(theirs.get(b"k".into(), TIMEOUT).await.expect("get").response, None);

        // Both at once, with responses in any order.
        let sets = (0..200).map(|number| {
            let ours = ours.set(format!("ours/{number}"), "v");
            tokio::spawn(async move { ours.await.map(drop) })
        });
        let sets: Vec<_> = sets.collect();
        for number in 0..100 {
            let key = format!("theirs/{number}").into_bytes();
            let options = SetOptions::default();
            let set = theirs.set(key, b"v".into(), TIMEOUT, None, options).await;
            assert!(set.expect("set").response);
        }
        for set in sets {
            set.await.expect("no panic").expect("set");
        }
        assert_eq!(service.stats().keys, 300);
        ours.shutdown().await;
        session.exit().await.expect("a graceful exit");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_client_receives_the_notifications_of_its_own_keys() {
    timely(async {
        let (broker, service) = serve().await;
        let port = broker.local_addr().port();
        let (session, other) =
            (RunningSession::start("app", port), RunningSession::start("o", port));
        let (theirs, ours) = (session.store(), handle(&session).await);
        let writer = handle(&other).await;
        let observe = theirs.observe(b"theirs".into(), TIMEOUT).await;
        let mut observation = observe.expect("observe").response;
        let mut watch = ours.watch("ours").await.expect("watch");
        assert_eq!(watch.next().await, Some(WatchEvent::Live));
        for round in 0..50 {
            writer.set("theirs", round.to_string()).await.expect("set");
            writer.set("ours", round.to_string()).await.expect("set");
            assert_eq!(change(&mut watch).await, Some(round.to_string().into_bytes()));
            let (notification, _) = observation.recv_notification().await.expect("it continues");
            assert_eq!(notification.key, b"theirs");
            assert_eq!(notification.operation, Operation::Set(round.to_string().into_bytes()));
        }
        // The handle leaves the subscription to the SDK's client.
        drop(watch);
        ours.shutdown().await;
        writer.set("theirs", "last").await.expect("set");
        let (notification, _) = observation.recv_notification().await.expect("it continues");
        assert_eq!(notification.operation, Operation::Set(b"last".into()));
        assert_eq!(service.stats().keys, 2);
        writer.shutdown().await;
        session.exit().await.expect("a graceful exit");
        other.exit().await.expect("a graceful exit");
    })
    .await;
}

/// A message that stayed unacknowledged would block the session after a few more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_responses_and_notifications_are_acknowledged() {
    timely(async {
        let (broker, _service) = serve().await;
        let port = broker.local_addr().port();
        let narrow = settings("app", "127.0.0.1", port).receive_max(2_u16).build();
        let session = RunningSession::with(narrow.expect("settings"));
        // Their receivers get the notifications as well.
        let (theirs, ours) = (session.store(), handle(&session).await);
        let mut watch = ours.watch("k").await.expect("watch");
        for round in 0..100 {
            ours.set("k", round.to_string()).await.expect("set");
            assert_eq!(change(&mut watch).await, Some(round.to_string().into_bytes()));
        }
        assert!(theirs.get(b"k".into(), TIMEOUT).await.expect("get").response.is_some());
        ours.shutdown().await;
        session.exit().await.expect("a graceful exit");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn application_keeps_its_session_and_its_other_messages() {
    timely(async {
        let (broker, _service) = serve().await;
        let session = RunningSession::start("app", broker.local_addr().port());
        let client = session.client.clone();
        // Receives only what no filter of the link matches.
        let mut rest = client.create_unfiltered_pub_receiver();
        let filter = TopicFilter::new("rooms/#").expect("a filter");
        let (options, properties) = (RetainOptions::default(), SubscribeProperties::default());
        let subscribed = client.subscribe(filter, QoS::AtLeastOnce, false, options, properties);
        subscribed.await.expect("a session").await.expect("granted");
        let publish = async |payload: &'static str| {
            let topic = TopicName::new("rooms/1").expect("a topic");
            let properties = PublishProperties::default();
            let published = client.publish_qos1(topic, false, payload, properties).await;
            published.expect("a session").await.expect("acknowledged");
        };
        let ours = handle(&session).await;
        let mut watch = ours.watch("k").await.expect("watch");
        publish("before").await;
        ours.set("k", "v").await.expect("set");
        assert_eq!(change(&mut watch).await, Some(b"v".to_vec()));
        assert_eq!(rest.recv().await.expect("a message").payload, "before");
        drop(watch);
        ours.shutdown().await;
        assert!(session.monitor.is_connected());
        publish("after").await;
        assert_eq!(rest.recv().await.expect("a message").payload, "after");
        // Another handle on the same session.
        let ours = handle(&session).await;
        assert_eq!(ours.get("k").await.expect("get").expect("it was set").value, "v");
        ours.shutdown().await;
        let more = tokio::time::timeout(Duration::from_millis(100), rest.recv()).await;
        assert!(more.is_err(), "{more:?}");
        session.exit().await.expect("a graceful exit");
    })
    .await;
}

/// A handle that renews its watches every second, with a live watch of `k`.
async fn renewing(session: &RunningSession) -> (StateStore, Watch) {
    let link = SessionLink::new(session.client.clone(), session.monitor.clone());
    let store = StateStore::builder().renew_watches(Some(Duration::from_secs(1))).spawn(link);
    let store = store.expect("a client id");
    let mut watch = store.watch("k").await.expect("watch");
    while watch.next().await != Some(WatchEvent::Live) {}
    (store, watch)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watch_registers_again_after_the_client_of_the_sdk_has_unobserved_its_key() {
    timely(async {
        let (broker, _service) = serve().await;
        let port = broker.local_addr().port();
        let (session, other) =
            (RunningSession::start("app", port), RunningSession::start("o", port));
        let writer = handle(&other).await;
        let theirs = session.store();
        let (_ours, mut watch) = renewing(&session).await;
        assert!(theirs.unobserve(b"k".into(), TIMEOUT).await.expect("reply").response);
        writer.set("k", "missed").await.expect("set");
        assert_eq!(watch.next().await, Some(WatchEvent::Gap));
        assert_eq!(change(&mut watch).await, Some(b"missed".to_vec()));
        assert_eq!(watch.next().await, Some(WatchEvent::Live));
        writer.set("k", "received").await.expect("set");
        assert_eq!(change(&mut watch).await, Some(b"received".to_vec()));
    })
    .await;
}

/// The embedded broker delivers notifications without a subscription.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watch_is_read_at_renewals_after_the_client_of_the_sdk_has_unsubscribed() {
    let Some(broker) = Mosquitto::start("unsubscribed") else { return };
    timely(async {
        let service = statestore_client::serve(broker.options("statestore")).expect("options");
        service.wait_connected().await.expect("the store connects");
        let session = RunningSession::start("app", broker.port());
        let other = RunningSession::start("o", broker.port());
        let writer = handle(&other).await;
        let theirs = session.store();
        // An observation, so that the SDK's client has subscribed.
        theirs.observe(b"theirs".into(), TIMEOUT).await.expect("observe");
        let (_ours, mut watch) = renewing(&session).await;
        theirs.shutdown().await.expect("shutdown");
        // `shutdown` returns before the client has unsubscribed from the notifications.
        for number in 0.. {
            writer.set("k", number.to_string()).await.expect("set");
            if watch.next().await == Some(WatchEvent::Gap) {
                assert_eq!(change(&mut watch).await, Some(number.to_string().into_bytes()));
                break;
            }
        }
        assert_eq!(watch.next().await, Some(WatchEvent::Live));
        writer.set("k", "last").await.expect("set");
        assert_eq!(watch.next().await, Some(WatchEvent::Gap), "not subscribed");
        assert_eq!(change(&mut watch).await, Some(b"last".to_vec()));
    })
    .await;
}
