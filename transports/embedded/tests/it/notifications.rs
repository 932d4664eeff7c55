//! Notifications reach the client that asked for them: directly, once, in order, and nobody else.

use bytes::Bytes;
use statestore_embedded::Broker;
use statestore_proto::topic::RESERVED;
use statestore_tokio::StoreService;

use crate::raw::{Raw, property, resp};
use crate::{options, start, timely};

/// `client-id1` and `SOMEKEY` in hexadecimal digits.
const ID: &str = "636C69656E742D696431";
const KEY: &str = "534F4D454B4559";

fn topic() -> String {
    format!("{RESERVED}/{ID}/command/notify/{KEY}")
}

fn notify(value: &str) -> Bytes {
    resp(&["NOTIFY", "SET", "VALUE", value])
}

/// A client that watches, and another one that writes.
async fn both(broker: &Broker) -> (Raw, Raw) {
    (Raw::connect(broker, "client-id1").await, Raw::connect(broker, "writer").await)
}

async fn watch(watcher: &mut Raw) {
    assert_eq!(watcher.ask(&["KEYNOTIFY", "SOMEKEY"]).await, &b"+OK\r\n"[..]);
}

async fn set(writer: &mut Raw, value: &str) {
    assert_eq!(writer.ask(&["SET", "SOMEKEY", value]).await, &b"+OK\r\n"[..]);
}

/// What was heard before the answer to one more request. Whatever the store sent a client before that answer arrives
/// before it.
async fn heard(raw: &mut Raw) -> Vec<Bytes> {
    raw.ask(&["GET", "another"]).await;
    raw.payloads()
}

#[tokio::test]
async fn they_are_delivered_without_a_subscription() {
    timely(async {
        let (broker, _service) = start(options()).await;
        let (mut watcher, mut writer) = both(&broker).await;
        watch(&mut watcher).await;
        set(&mut writer, "one").await;
        watcher.message().await;
        let told = watcher.heard.pop().expect("a notification");
        assert_eq!((&told.payload, &told.topic), (&notify("one"), &Bytes::from(topic())));
        assert!(property(&told, "__ts").is_some_and(|version| version.ends_with(":StateStore")));
        writer.ask(&["DEL", "SOMEKEY"]).await;
        watcher.message().await;
        assert_eq!(watcher.payloads(), [resp(&["NOTIFY", "DELETE"])]);
    })
    .await;
}

#[tokio::test]
async fn they_are_delivered_once_whatever_is_subscribed() {
    timely(async {
        let (broker, _service) = start(options()).await;
        let (mut watcher, mut writer) = both(&broker).await;
        watch(&mut watcher).await;
        // One more at a time, so that in the end all of them overlap.
        for filter in [
            topic(),
            format!("{RESERVED}/{ID}/command/notify/+"),
            format!("{RESERVED}/{ID}/#"),
            format!("{RESERVED}/+/command/notify/{KEY}"),
            format!("$share/group/{}", topic()),
            "#".to_owned(),
        ] {
            watcher.subscribe(&filter).await;
            set(&mut writer, &filter).await;
            let told: Vec<Bytes> = heard(&mut watcher).await;
            let told = told.iter().filter(|payload| payload.starts_with(b"*4\r\n$6\r\nNOTIFY"));
            assert_eq!(told.collect::<Vec<_>>(), [&notify(&filter)], "{filter}");
        }
    })
    .await;
}

#[tokio::test]
async fn nobody_else_hears_them() {
    timely(async {
        let (broker, _service) = start(options()).await;
        let (mut watcher, mut writer) = both(&broker).await;
        let mut spy = Raw::connect(&broker, "spy").await;
        spy.subscribe(&topic()).await;
        spy.subscribe("clients/statestore/#").await;
        watch(&mut watcher).await;
        set(&mut writer, "one").await;
        assert_eq!(heard(&mut watcher).await, [notify("one")]);
        assert!(heard(&mut spy).await.is_empty());
    })
    .await;
}

#[tokio::test]
async fn what_was_caused_before_a_stop_comes_before_its_answer() {
    timely(async {
        let (broker, _service) = start(options()).await;
        let (mut watcher, _) = both(&broker).await;
        for turn in 0..50_u32 {
            watch(&mut watcher).await;
            // All at once, by one client: the store takes them in this order.
            let values: Vec<String> = (0..20).map(|at| format!("{turn}.{at}")).collect();
            for value in &values {
                watcher.send(watcher.request(&["SET", "SOMEKEY", value]));
            }
            let stop = watcher.send(watcher.request(&["KEYNOTIFY", "SOMEKEY", "STOP"]));
            watcher.send(watcher.request(&["SET", "SOMEKEY", "unheard"]));
            assert_eq!(watcher.answer_to(&stop).await.payload, &b"+OK\r\n"[..]);
            let told: Vec<Bytes> = watcher.payloads();
            let told: Vec<&Bytes> =
                told.iter().filter(|payload| payload.starts_with(b"*4\r\n")).collect();
            let expected: Vec<Bytes> = values.iter().map(|value| notify(value)).collect();
            assert_eq!(told, expected.iter().collect::<Vec<_>>(), "turn {turn}");
        }
        assert!(heard(&mut watcher).await.iter().all(|payload| !payload.starts_with(b"*4\r\n")));
    })
    .await;
}

/// Waits until the store knows of so many registrations.
async fn watches(service: &StoreService, count: usize) {
    while service.stats().watches != count {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_client_that_goes_loses_its_registrations_at_once() {
    timely(async {
        let (broker, service) = start(options()).await;
        let (mut watcher, mut writer) = both(&broker).await;
        watch(&mut watcher).await;
        watcher.goodbye().await;
        watches(&service, 0).await;

        let mut watcher = Raw::connect(&broker, "client-id1").await;
        set(&mut writer, "unheard").await;
        assert!(heard(&mut watcher).await.is_empty());
        watch(&mut watcher).await;
        set(&mut writer, "heard").await;
        assert_eq!(heard(&mut watcher).await, [notify("heard")]);
        drop(watcher);
        watches(&service, 0).await;
    })
    .await;
}

#[tokio::test]
async fn a_takeover_ends_registrations_and_a_session_that_lives_on_does_not_keep_them() {
    timely(async {
        let (broker, service) = start(options()).await;
        let (_, mut writer) = both(&broker).await;
        let persistent = |options: &mut rumqttc::v5::MqttOptions| {
            options.set_clean_start(false).set_session_expiry_interval(Some(600));
        };
        let answers = "clients/client-id1/answers";
        let (mut first, _) = Raw::open(&broker, "client-id1", persistent).await.expect("it may");
        first.subscribe(answers).await;
        watch(&mut first).await;
        for _ in 0..10 {
            let (mut second, connack) =
                Raw::open(&broker, "client-id1", persistent).await.expect("it may");
            assert!(connack.session_present);
            // At once, while the one that was taken over is still on its route out.
            watch(&mut second).await;
            set(&mut writer, "heard").await;
            assert_eq!(heard(&mut second).await, [notify("heard")]);
            first.ended().await;
            assert_eq!(service.stats().watches, 1, "the older one's end ends nothing");
            first = second;
        }
        drop(first);
        watches(&service, 0).await;
        set(&mut writer, "unheard").await;
        let (mut back, connack) =
            Raw::open(&broker, "client-id1", persistent).await.expect("it may");
        assert!(connack.session_present);
        assert!(heard(&mut back).await.is_empty());
    })
    .await;
}

#[tokio::test]
async fn a_restart_of_the_broker_ends_registrations() {
    timely(async {
        let (broker, service) = start(options()).await;
        let (mut watcher, mut writer) = both(&broker).await;
        watch(&mut watcher).await;
        set(&mut writer, "kept").await;
        broker.start().await.expect("it listens again");
        watcher.ended().await;
        let (mut watcher, mut writer) = both(&broker).await;
        let kept = watcher.ask(&["GET", "SOMEKEY"]).await;
        assert_eq!(kept, &b"$4\r\nkept\r\n"[..], "the store lives on");
        watches(&service, 0).await;
        set(&mut writer, "unheard").await;
        assert!(heard(&mut watcher).await.is_empty());
        watch(&mut watcher).await;
        set(&mut writer, "heard").await;
        assert_eq!(heard(&mut watcher).await, [notify("heard")]);
    })
    .await;
}
