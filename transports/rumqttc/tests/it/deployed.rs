//! The deployed clients, as what they put on the wire: all of their properties, padded clock values, 16 bytes of
//! correlation data, response topics of several forms; and what they demand of an answer.

use bytes::Bytes;
use rumqttc::v5::mqttbytes::QoS;
use rumqttc::v5::mqttbytes::v5::{Publish, PublishProperties};
use statestore_proto::topic::REQUEST;
use statestore_rumqttc::{Options, rumqttc, serve};

use crate::real::Raw;
use crate::timely;
use statestore_tests::mosquitto::Mosquitto;

const RESPONSE_TOPICS: [&str; 3] = [
    "clients/device/services/statestore/_any_/command/invoke/response",
    "clients/device/statestore/v1/FA9AE35F-2F64-47CD-9BFF-08E2B32A0FE8/command/invoke",
    "clients/device/replies",
];

fn request(payload: &'static [u8], response_topic: &str, correlation: [u8; 16]) -> Publish {
    // Far behind the store's clock, which is never an error.
    let properties = [
        ("__ts", "001696374425000:00000:device"),
        ("__srcId", "device"),
        ("__protVer", "1.0"),
        ("$partition", "device"),
        ("$high_priority", ""),
    ];
    let properties = PublishProperties {
        response_topic: Some(response_topic.into()),
        correlation_data: Some(Bytes::copy_from_slice(&correlation)),
        content_type: Some("application/octet-stream".into()),
        message_expiry_interval: Some(10),
        user_properties: properties.map(|(name, value)| (name.into(), value.into())).into(),
        ..PublishProperties::default()
    };
    Publish::new(REQUEST, QoS::AtLeastOnce, payload, Some(properties))
}

/// The value of a user property.
fn property<'a>(answer: &'a Publish, name: &str) -> Option<&'a str> {
    let mut all = answer.properties.as_ref()?.user_properties.iter();
    all.find(|(other, _)| other == name).map(|(_, value)| value.as_str())
}

#[tokio::test]
async fn deployed_clients_are_answered_as_they_demand() {
    let Some(broker) = Mosquitto::start("deployed_clients_are_answered_as_they_demand") else {
        return;
    };
    timely(async {
        let service = serve(Options::new("statestore", "127.0.0.1", broker.port()));
        service.connected().await.expect("the store connects");
        let mut raw = Raw::connect(&broker, "device").await;
        for (turn, response_topic) in (0_u8..).zip(RESPONSE_TOPICS) {
            let exchanges: [(&[u8], &[u8], bool); 7] = [
                (b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\nv\r\n", b"+OK\r\n", true),
                (b"*4\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\nw\r\n$2\r\nNX\r\n", b":-1\r\n", true),
                (b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n", b"$1\r\nv\r\n", true),
                (b"*3\r\n$4\r\nVDEL\r\n$1\r\nk\r\n$1\r\nw\r\n", b":-1\r\n", true),
                (b"*2\r\n$3\r\nDEL\r\n$1\r\nk\r\n", b":1\r\n", true),
                (b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n", b"$-1\r\n", false),
                (b"*2\r\n$3\r\nGOT\r\n$1\r\nk\r\n", b"-ERR unknown command\r\n", false),
            ];
            for (number, (asked, expected, versioned)) in (0_u8..).zip(exchanges) {
                let mut correlation = [turn; 16];
                correlation[15] = number;
                let answer = raw.answer(request(asked, response_topic, correlation)).await;
                let about = format!("{} on {response_topic}", asked.escape_ascii());
                assert_eq!(answer.payload, expected, "{about}");
                assert_eq!(answer.topic, response_topic, "{about}");
                assert_eq!(property(&answer, "__stat"), Some("200"), "{about}");
                assert_eq!(property(&answer, "__ts").is_some(), versioned, "{about}");
                let data = answer.properties.and_then(|properties| properties.correlation_data);
                assert_eq!(data.as_deref(), Some(&correlation[..]), "{about}");
            }
        }
        service.shutdown().await;
    })
    .await;
}
