//! Requests in the form of the deployed clients: with all of their properties, padded clock values,
//! 16 bytes of correlation data, and response topics of several forms. Replies are checked like the
//! clients check them.

use crate::wire::raw::{Hello, Raw, RawRequest, property, words};

const RESPONSE_TOPICS: [&str; 3] = [
    "clients/device/services/statestore/_any_/command/invoke/response",
    "clients/device/statestore/v1/FA9AE35F-2F64-47CD-9BFF-08E2B32A0FE8/command/invoke",
    "clients/device/replies",
];

/// Sends such requests to the store of the broker on this port, and checks the replies.
///
/// # Panics
/// If a deployed client would reject a reply.
pub fn deployed_clients_accept_the_replies(port: u16) {
    let mut raw = Raw::open(port, "device", Hello::default());
    raw.subscribe("clients/device/#");
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
        for (command, expected, versioned) in exchanges {
            let mut request = RawRequest::deployed("device", words(command));
            request.response_topic = Some(response_topic.into());
            assert_eq!(request.correlation.as_ref().map(Vec::len), Some(16));
            let answer = raw.ask(&request);
            let about = format!("{command:?} on {response_topic}");
            assert_eq!(answer.payload, expected, "{about}");
            assert_eq!(answer.topic, response_topic, "{about}");
            assert_eq!(property(&answer, "__stat"), Some("200"), "{about}");
            assert_eq!(property(&answer, "__ts").is_some(), versioned, "{about}");
        }
    }
    assert!(raw.receives_nothing_more(), "one answer each");
}
