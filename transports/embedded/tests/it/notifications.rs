//! Notifications reach the client that asked for them: directly, once, in order, and nobody else.

use bytes::Bytes;
use statestore_embedded::Broker;
use statestore_proto::topic::RESERVED;
use statestore_tests::mqttbytes::v5::DisconnectReasonCode;
use statestore_tests::raw::{Ask, Hello, Raw, property, response_topic, words};
use statestore_tests::timely::timely;
use statestore_tokio::StoreService;

use crate::{open, options, raw, start};

/// `client-id1` and `SOMEKEY` in hexadecimal digits.
const ID: &str = "636C69656E742D696431";
const KEY: &str = "534F4D454B4559";

fn topic() -> String {
    format!("{RESERVED}/{ID}/command/notify/{KEY}")
}

fn notify(value: &str) -> Vec<u8> {
    words(&["NOTIFY", "SET", "VALUE", value])
}

/// A client that watches, and another one that writes.
fn both(broker: &Broker) -> (Raw, Raw) {
    (raw(broker, "client-id1"), raw(broker, "writer"))
}

fn watch(watcher: &mut Raw) {
    assert_eq!(watcher.command(&["KEYNOTIFY", "SOMEKEY"]), b"+OK\r\n");
}

fn set(writer: &mut Raw, value: &str) {
    assert_eq!(writer.command(&["SET", "SOMEKEY", value]), b"+OK\r\n");
}

/// What was heard before the answer to one more request. Whatever the store sent a client before that answer arrives
/// before it.
fn heard(raw: &mut Raw) -> Vec<Bytes> {
    assert_eq!(raw.command(&["GET", "another"]), b"$-1\r\n");
    raw.heard().into_iter().map(|message| message.payload).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn they_are_delivered_without_a_subscription() {
    timely(async {
        let (broker, _service) = start(options()).await;
        let (mut watcher, mut writer) = both(&broker);
        watch(&mut watcher);
        set(&mut writer, "one");
        let told = watcher.message();
        assert_eq!((&told.payload[..], &told.topic[..]), (&*notify("one"), topic().as_bytes()));
        assert!(property(&told, "__ts").is_some_and(|version| version.ends_with(":StateStore")));
        assert_eq!(writer.command(&["DEL", "SOMEKEY"]), b":1\r\n");
        assert_eq!(watcher.message().payload, words(&["NOTIFY", "DELETE"]));
        assert!(watcher.hears_nothing_more());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn they_are_delivered_once_whatever_is_subscribed() {
    timely(async {
        let (broker, _service) = start(options()).await;
        let (mut watcher, mut writer) = both(&broker);
        watch(&mut watcher);
        // One more at a time, so that in the end all of them overlap.
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
            let told = heard(&mut watcher);
            let told = told.iter().filter(|payload| payload.starts_with(b"*4\r\n$6\r\nNOTIFY"));
            assert_eq!(told.collect::<Vec<_>>(), [&notify(&filter)], "{filter}");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_else_hears_them() {
    timely(async {
        let (broker, _service) = start(options()).await;
        let (mut watcher, mut writer) = both(&broker);
        let mut spy = raw(&broker, "spy");
        spy.subscribe(&topic());
        spy.subscribe("clients/statestore/#");
        watch(&mut watcher);
        set(&mut writer, "one");
        assert_eq!(heard(&mut watcher), [notify("one")]);
        assert!(heard(&mut spy).is_empty());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_caused_before_a_stop_comes_before_its_answer() {
    timely(async {
        let (broker, _service) = start(options()).await;
        let (mut watcher, _) = both(&broker);
        for turn in 0..50_u32 {
            watch(&mut watcher);
            // All at once, by one client: the store takes them in this order.
            let values: Vec<String> = (0..20).map(|at| format!("{turn}.{at}")).collect();
            let ask = |command: &[&str]| Ask::deployed("client-id1", words(command));
            for value in &values {
                watcher.send(&ask(&["SET", "SOMEKEY", value]));
            }
            let stop = ask(&["KEYNOTIFY", "SOMEKEY", "STOP"]);
            watcher.send(&stop);
            watcher.send(&ask(&["SET", "SOMEKEY", "unheard"]));
            for _ in &values {
                assert_eq!(watcher.reply().payload, &b"+OK\r\n"[..]);
            }
            let stopped = watcher.reply();
            let of = stopped.properties.as_ref().and_then(|all| all.correlation_data.as_deref());
            assert_eq!((&stopped.payload[..], of), (&b"+OK\r\n"[..], stop.correlation.as_deref()));
            let told: Vec<Bytes> = watcher.heard().into_iter().map(|it| it.payload).collect();
            let expected: Vec<Vec<u8>> = values.iter().map(|value| notify(value)).collect();
            assert_eq!(told, expected, "turn {turn}");
            assert_eq!(watcher.reply().payload, &b"+OK\r\n"[..], "unheard");
        }
        assert!(watcher.hears_nothing_more());
    })
    .await;
}

/// Waits until the store knows of so many registrations.
async fn watches(service: &StoreService, count: usize) {
    while service.stats().watches != count {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_goes_loses_its_registrations_at_once() {
    timely(async {
        let (broker, service) = start(options()).await;
        let (mut watcher, mut writer) = both(&broker);
        watch(&mut watcher);
        watcher.disconnect();
        watches(&service, 0).await;

        let mut watcher = raw(&broker, "client-id1");
        set(&mut writer, "unheard");
        assert!(heard(&mut watcher).is_empty());
        watch(&mut watcher);
        set(&mut writer, "heard");
        assert_eq!(heard(&mut watcher), [notify("heard")]);
        drop(watcher);
        watches(&service, 0).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_takeover_ends_registrations_and_a_session_that_lives_on_does_not_keep_them() {
    timely(async {
        let (broker, service) = start(options()).await;
        let (_, mut writer) = both(&broker);
        let persistent = Hello { session: Some(600), ..Hello::default() };
        let mut first = open(&broker, "client-id1", persistent);
        first.subscribe(&response_topic("client-id1"));
        watch(&mut first);
        // What the broker does not know to have arrived it would deliver again.
        let settle = |raw: &mut Raw| raw.publish("somewhere", false, "after acknowledgements");
        settle(&mut first);
        for _ in 0..10 {
            let mut second = open(&broker, "client-id1", persistent);
            assert!(second.welcome.session_present);
            // At once, while the one that was taken over is still on its route out.
            watch(&mut second);
            set(&mut writer, "heard");
            assert_eq!(heard(&mut second), [notify("heard")]);
            assert_eq!(first.ended(), Some(DisconnectReasonCode::SessionTakenOver));
            assert_eq!(service.stats().watches, 1, "the older one's end ends nothing");
            settle(&mut second);
            first = second;
        }
        drop(first);
        watches(&service, 0).await;
        set(&mut writer, "unheard");
        let mut back = open(&broker, "client-id1", persistent);
        assert!(back.welcome.session_present);
        assert!(heard(&mut back).is_empty());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_of_the_broker_ends_registrations() {
    timely(async {
        let (broker, service) = start(options()).await;
        let (mut watcher, mut writer) = both(&broker);
        watch(&mut watcher);
        set(&mut writer, "kept");
        broker.start().await.expect("it listens again");
        assert_eq!(watcher.ended(), Some(DisconnectReasonCode::ServerShuttingDown));
        let (mut watcher, mut writer) = both(&broker);
        let kept = watcher.command(&["GET", "SOMEKEY"]);
        assert_eq!(kept, b"$4\r\nkept\r\n", "the store lives on");
        watches(&service, 0).await;
        set(&mut writer, "unheard");
        assert!(heard(&mut watcher).is_empty());
        watch(&mut watcher);
        set(&mut writer, "heard");
        assert_eq!(heard(&mut watcher), [notify("heard")]);
    })
    .await;
}
