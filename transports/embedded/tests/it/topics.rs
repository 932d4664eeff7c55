//! Other topics work as on any broker.

use rumqttc::v5::mqttbytes::v5::PubAckReason;

use crate::raw::Raw;
use crate::{options, start, timely};

#[tokio::test]
async fn retained_messages_are_kept_and_cleared() {
    timely(async {
        let (broker, _service) = start(options()).await;
        let mut publisher = Raw::connect(&broker, "publisher").await;
        assert_eq!(publisher.publish("lamp", true, "on").await, PubAckReason::Success);
        let mut late = Raw::connect(&broker, "late").await;
        late.subscribe("lamp").await;
        late.ask(&["GET", "k"]).await;
        assert!(late.heard.iter().all(|message| message.retain && message.topic == "lamp"));
        assert_eq!(late.payloads(), ["on"]);
        publisher.publish("lamp", true, "").await;
        let mut later = Raw::connect(&broker, "later").await;
        later.subscribe("lamp").await;
        later.ask(&["GET", "k"]).await;
        assert!(later.payloads().is_empty());
    })
    .await;
}

#[tokio::test]
async fn a_will_is_published_for_a_client_that_drops_and_not_for_one_that_leaves() {
    timely(async {
        let (broker, _service) = start(options()).await;
        let mut heir = Raw::connect(&broker, "heir").await;
        heir.subscribe("wills/+").await;
        let with_will = |id: &'static str| {
            Raw::open(&broker, id, move |options| {
                options.set_last_will(Raw::will(&format!("wills/{id}"), b"farewell"));
            })
        };
        let (polite, _) = with_will("polite").await.expect("a connection");
        polite.goodbye().await;
        drop(with_will("dropped").await.expect("a connection"));
        heir.message().await;
        let topics: Vec<_> = heir.heard.iter().map(|message| message.topic.clone()).collect();
        assert_eq!(topics, ["wills/dropped"]);
    })
    .await;
}

#[tokio::test]
async fn a_session_keeps_what_arrives_while_its_client_is_away() {
    timely(async {
        let (broker, _service) = start(options()).await;
        let persistent = |options: &mut rumqttc::v5::MqttOptions| {
            options.set_clean_start(false).set_session_expiry_interval(Some(600));
        };
        let (mut reader, connack) = Raw::open(&broker, "reader", persistent).await.expect("it may");
        assert!(!connack.session_present);
        reader.subscribe("news").await;
        reader.goodbye().await;
        let mut publisher = Raw::connect(&broker, "publisher").await;
        for at in 0..10 {
            publisher.publish("news", false, at.to_string()).await;
        }
        let (mut reader, connack) = Raw::open(&broker, "reader", persistent).await.expect("it may");
        assert!(connack.session_present);
        while reader.heard.len() < 10 {
            reader.message().await;
        }
        let expected: Vec<String> = (0..10).map(|at| at.to_string()).collect();
        assert_eq!(reader.payloads(), expected);
    })
    .await;
}
