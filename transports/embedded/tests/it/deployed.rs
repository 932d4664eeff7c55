//! The deployed clients, as what they put on the wire, and what they demand of an answer.

use rumqttc::v5::mqttbytes::v5::Publish;

use crate::raw::{Raw, property};
use crate::{options, start, timely};

const RESPONSE_TOPICS: [&str; 3] = [
    "clients/device/services/statestore/_any_/command/invoke/response",
    "clients/device/statestore/v1/FA9AE35F-2F64-47CD-9BFF-08E2B32A0FE8/command/invoke",
    "clients/device/replies",
];

/// All that they send besides the words of a command.
fn dressed(raw: &Raw, words: &[&str], response_topic: &str) -> Publish {
    let mut request = raw.request_as(words, "device", response_topic);
    let properties = request.properties.as_mut().expect("properties");
    properties.content_type = Some("application/octet-stream".into());
    properties.user_properties.push(("$partition".into(), "device".into()));
    properties.user_properties.push(("$high_priority".into(), String::new()));
    request
}

#[tokio::test]
async fn deployed_clients_are_answered_as_they_demand() {
    timely(async {
        let (broker, _service) = start(options()).await;
        let mut raw = Raw::connect(&broker, "device").await;
        raw.subscribe("clients/device/#").await;
        for response_topic in RESPONSE_TOPICS {
            let exchanges: [(&[&str], &str, bool); 7] = [
                (&["SET", "k", "v"], "+OK\r\n", true),
                (&["SET", "k", "w", "NX"], ":-1\r\n", true),
                (&["GET", "k"], "$1\r\nv\r\n", true),
                (&["VDEL", "k", "w"], ":-1\r\n", true),
                (&["DEL", "k"], ":1\r\n", true),
                (&["GET", "k"], "$-1\r\n", false),
                (&["GOT", "k"], "-ERR unknown command\r\n", false),
            ];
            for (words, expected, versioned) in exchanges {
                let request = dressed(&raw, words, response_topic);
                let answer = raw.answer(request).await;
                let about = format!("{words:?} on {response_topic}");
                assert_eq!(answer.payload, expected, "{about}");
                assert_eq!(answer.topic, response_topic, "{about}");
                assert_eq!(property(&answer, "__stat"), Some("200"), "{about}");
                assert_eq!(property(&answer, "__ts").is_some(), versioned, "{about}");
            }
        }
        assert!(raw.payloads().is_empty(), "one answer each");
    })
    .await;
}
