//! Ordinary topics work as with any MQTT broker.

use statestore_testkit::process::timely;
use statestore_testkit::wire::packets::Reason;
use statestore_testkit::wire::raw::Hello;

use crate::{open, options, raw, start};

#[tokio::test(flavor = "multi_thread")]
async fn retained_message_is_delivered_until_cleared() {
    timely(async {
        let (broker, _service) = start(options()).await;
        let mut publisher = raw(&broker, "publisher");
        let reason = publisher.publish("lamp", true, "on");
        assert_eq!(reason, Reason::NO_MATCHING_SUBSCRIBERS, "no subscriber yet");
        let mut late = raw(&broker, "late");
        late.subscribe("lamp");
        let retained = late.message();
        assert!(
            retained.retain && retained.topic == "lamp" && retained.payload == "on",
            "{retained:?}"
        );
        assert!(late.receives_nothing_more());
        // The timer task delivers retained messages. Other tasks must wake it at the right moment.
        for at in 0..500 {
            late.subscribe("lamp");
            assert!(late.message().retain, "{at}");
        }
        publisher.publish("lamp", true, "");
        let mut later = raw(&broker, "later");
        later.subscribe("lamp");
        assert!(later.receives_nothing_more());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn will_is_published_after_connection_loss_but_not_after_disconnect() {
    timely(async {
        let (broker, _service) = start(options()).await;
        let mut heir = raw(&broker, "heir");
        heir.subscribe("wills/+");
        let with_will = |id: &str| {
            let topic = format!("wills/{id}");
            let will = Some((&*topic, "farewell"));
            open(&broker, id, Hello { will, ..Hello::default() })
        };
        with_will("polite").disconnect();
        drop(with_will("dropped"));
        assert_eq!(heir.message().topic, "wills/dropped");
        assert!(heir.receives_nothing_more());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn session_queues_messages_while_its_client_is_disconnected() {
    timely(async {
        let (broker, _service) = start(options()).await;
        let persistent = Hello { session: Some(600), ..Hello::default() };
        let mut reader = open(&broker, "reader", persistent);
        assert!(!reader.welcome.session_present);
        reader.subscribe("news");
        reader.disconnect();
        let mut publisher = raw(&broker, "publisher");
        for at in 0..10 {
            publisher.publish("news", false, at.to_string());
        }
        let mut reader = open(&broker, "reader", persistent);
        assert!(reader.welcome.session_present);
        for at in 0..10 {
            assert_eq!(reader.message().payload, at.to_string());
        }
    })
    .await;
}
