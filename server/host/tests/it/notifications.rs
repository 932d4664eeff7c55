//! Notifications are delivered to the client that registered: directly, exactly once, in order, and
//! to no other client.

use bytes::Bytes;
use statestore_proto::topic::RESERVED;
use statestore_server::Broker;
use statestore_testkit::process::{Port, timely, wait_free};
use statestore_testkit::wire::packets::Reason;
use statestore_testkit::wire::raw::{Hello, Raw, RawRequest, property, response_topic, words};
use statestore_tokio::StoreService;

use crate::{open, options, options_at, raw, start};

/// `client-id1` and `SOMEKEY` in hexadecimal.
const ID: &str = "636C69656E742D696431";
const KEY: &str = "534F4D454B4559";

fn topic() -> String {
    format!("{RESERVED}/{ID}/command/notify/{KEY}")
}

fn notify(value: &str) -> Vec<u8> {
    words(&["NOTIFY", "SET", "VALUE", value])
}

/// Connects a client that watches and a client that writes.
fn connect_both(broker: &Broker) -> (Raw, Raw) {
    (raw(broker, "client-id1"), raw(broker, "writer"))
}

fn watch(watcher: &mut Raw) {
    assert_eq!(watcher.command(&["KEYNOTIFY", "SOMEKEY"]), b"+OK\r\n");
}

fn set(writer: &mut Raw, value: &str) {
    assert_eq!(writer.command(&["SET", "SOMEKEY", value]), b"+OK\r\n");
}

/// Returns the payloads received before the response to one more request. Everything that the store
/// sent to the client earlier arrives before that response.
fn received(raw: &mut Raw) -> Vec<Bytes> {
    assert_eq!(raw.command(&["GET", "another"]), b"$-1\r\n");
    raw.take_messages().into_iter().map(|message| message.payload).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn notifications_are_delivered_without_a_subscription() {
    timely(async {
        let (broker, _service) = start(options()).await;
        let (mut watcher, mut writer) = connect_both(&broker);
        watch(&mut watcher);
        set(&mut writer, "one");
        let message = watcher.message();
        assert_eq!(
            (&message.payload[..], &message.topic[..]),
            (&*notify("one"), topic().as_bytes())
        );
        assert!(property(&message, "__ts").is_some_and(|version| version.ends_with(":StateStore")));
        assert_eq!(writer.command(&["DEL", "SOMEKEY"]), b":1\r\n");
        assert_eq!(watcher.message().payload, words(&["NOTIFY", "DELETE"]));
        assert!(watcher.receives_nothing_more());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn notifications_are_delivered_once_with_overlapping_subscriptions() {
    timely(async {
        let (broker, _service) = start(options()).await;
        let (mut watcher, mut writer) = connect_both(&broker);
        watch(&mut watcher);
        // The subscriptions add up, so that in the end all of them overlap.
        for filter in [
            topic(),
            format!("{RESERVED}/{ID}/command/notify/+"),
            format!("{RESERVED}/{ID}/#"),
            format!("{RESERVED}/+/command/notify/{KEY}"),
            format!("$share/group/{}", topic()),
            "#".to_owned(),
        ] {
            watcher.subscribe(&filter);
            set(&mut writer, &filter);
            let payloads = received(&mut watcher);
            let notifications =
                payloads.iter().filter(|payload| payload.starts_with(b"*4\r\n$6\r\nNOTIFY"));
            assert_eq!(notifications.collect::<Vec<_>>(), [&notify(&filter)], "{filter}");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn notifications_are_not_delivered_to_other_clients() {
    timely(async {
        let (broker, _service) = start(options()).await;
        let (mut watcher, mut writer) = connect_both(&broker);
        let mut spy = raw(&broker, "spy");
        spy.subscribe(&topic());
        spy.subscribe("clients/statestore/#");
        watch(&mut watcher);
        set(&mut writer, "one");
        assert_eq!(received(&mut watcher), [notify("one")]);
        assert!(received(&mut spy).is_empty());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn notifications_precede_the_response_to_a_later_stop() {
    timely(async {
        let (broker, _service) = start(options()).await;
        let (mut watcher, _) = connect_both(&broker);
        for turn in 0..50_u32 {
            watch(&mut watcher);
            // All at once by one client, so the store processes them in this order.
            let values: Vec<String> = (0..20).map(|at| format!("{turn}.{at}")).collect();
            let ask = |command: &[&str]| RawRequest::deployed("client-id1", words(command));
            for value in &values {
                watcher.send(&ask(&["SET", "SOMEKEY", value]));
            }
            let stop = ask(&["KEYNOTIFY", "SOMEKEY", "STOP"]);
            watcher.send(&stop);
            watcher.send(&ask(&["SET", "SOMEKEY", "unwatched"]));
            for _ in &values {
                assert_eq!(watcher.reply().payload, &b"+OK\r\n"[..]);
            }
            let stopped = watcher.reply();
            let correlation =
                stopped.properties.as_ref().and_then(|all| all.correlation_data.as_deref());
            assert_eq!(
                (&stopped.payload[..], correlation),
                (&b"+OK\r\n"[..], stop.correlation.as_deref())
            );
            let payloads: Vec<Bytes> =
                watcher.take_messages().into_iter().map(|message| message.payload).collect();
            let expected: Vec<Vec<u8>> = values.iter().map(|value| notify(value)).collect();
            assert_eq!(payloads, expected, "turn {turn}");
            assert_eq!(watcher.reply().payload, &b"+OK\r\n"[..], "unwatched");
        }
        assert!(watcher.receives_nothing_more());
    })
    .await;
}

/// Waits until the store has this number of registrations.
async fn wait_for_watches(service: &StoreService, count: usize) {
    while service.stats().registrations != count {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn registrations_end_when_their_client_disconnects() {
    timely(async {
        let (broker, service) = start(options()).await;
        let (mut watcher, mut writer) = connect_both(&broker);
        watch(&mut watcher);
        watcher.disconnect();
        wait_for_watches(&service, 0).await;

        let mut watcher = raw(&broker, "client-id1");
        set(&mut writer, "unwatched");
        assert!(received(&mut watcher).is_empty());
        watch(&mut watcher);
        set(&mut writer, "watched");
        assert_eq!(received(&mut watcher), [notify("watched")]);
        drop(watcher);
        wait_for_watches(&service, 0).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn takeover_ends_registrations_even_if_the_session_continues() {
    timely(async {
        let (broker, service) = start(options()).await;
        let (_, mut writer) = connect_both(&broker);
        let persistent = Hello { session: Some(600), ..Hello::default() };
        let mut first = open(&broker, "client-id1", persistent);
        first.subscribe(&response_topic("client-id1"));
        watch(&mut first);
        // The broker would redeliver messages whose acknowledgement it has not received.
        let settle = |raw: &mut Raw| raw.publish("somewhere", false, "after acknowledgements");
        settle(&mut first);
        for _ in 0..10 {
            let mut second = open(&broker, "client-id1", persistent);
            assert!(second.welcome.session_present);
            // At once, while the broker may still be closing the connection that was taken over.
            watch(&mut second);
            set(&mut writer, "watched");
            assert_eq!(received(&mut second), [notify("watched")]);
            assert_eq!(first.ended(), Some(Reason::SESSION_TAKEN_OVER));
            assert_eq!(
                service.stats().registrations,
                1,
                "the end of the old connection does not end the new registration"
            );
            settle(&mut second);
            first = second;
        }
        drop(first);
        wait_for_watches(&service, 0).await;
        set(&mut writer, "unwatched");
        let mut back = open(&broker, "client-id1", persistent);
        assert!(back.welcome.session_present);
        assert!(received(&mut back).is_empty());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn broker_restart_ends_registrations() {
    timely(async {
        let port = Port::free();
        let (broker, service) = start(options_at(&port)).await;
        let (mut watcher, mut writer) = connect_both(&broker);
        watch(&mut watcher);
        set(&mut writer, "kept");
        broker.stop().await;
        wait_free(broker.local_addr());
        broker.start().await.expect("restart");
        assert_eq!(watcher.ended(), Some(Reason::SERVER_SHUTTING_DOWN));
        let (mut watcher, mut writer) = connect_both(&broker);
        let kept = watcher.command(&["GET", "SOMEKEY"]);
        assert_eq!(kept, b"$4\r\nkept\r\n", "the store keeps its keys");
        wait_for_watches(&service, 0).await;
        set(&mut writer, "unwatched");
        assert!(received(&mut watcher).is_empty());
        watch(&mut watcher);
        set(&mut writer, "watched");
        assert_eq!(received(&mut watcher), [notify("watched")]);
    })
    .await;
}
