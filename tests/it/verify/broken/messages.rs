use std::collections::BTreeSet;

use statestore_proto::topic;
use statestore_proto::transport::{Correlation, Qos};

use super::{
    Broken, differs, fails, lose, on_notification, on_reply, on_request, payload, property,
    set_property,
};

pub(super) fn replies() -> Vec<Broken> {
    vec![
        fails("requests without __protVer get no reply", "reply/topic", {
            let mut page = BTreeSet::new();
            Box::new(move |message| {
                let name = message.correlation_data.clone().map(|data| data.as_bytes().to_vec());
                if *message.topic != *topic::REQUEST && page.contains(&name) {
                    lose(message);
                } else if property(message, "__protVer").is_none() {
                    page.insert(name);
                }
            })
        }),
        fails(
            "no status",
            "reply/properties",
            on_reply(|reply| set_property(reply, "__stat", None)),
        ),
        fails(
            "errors have another status",
            "reply/properties",
            on_reply(|reply| {
                if reply.payload.starts_with(b"-ERR") {
                    set_property(reply, "__stat", Some("400".into()));
                }
            }),
        ),
        fails("QoS 0", "reply/properties", on_reply(|reply| reply.qos = Qos::AtMostOnce)),
        fails(
            "a content type of text",
            "reply/properties",
            on_reply(|reply| reply.content_type = Some("text/plain".into())),
        ),
        fails(
            "the next protocol version",
            "reply/properties",
            on_reply(|reply| set_property(reply, "__protVer", Some("2.0".into()))),
        ),
        fails(
            "one response topic for all",
            "reply/any-topic",
            on_reply(|reply| {
                let id = reply.topic.split('/').nth(1).unwrap_or_default();
                let topic =
                    format!("clients/{id}/services/statestore/_any_/command/invoke/response");
                reply.topic = topic.into();
            }),
        ),
        fails(
            "correlation data are truncated at 16 bytes",
            "reply/correlation",
            on_reply(|reply| {
                if let Some(data) = &reply.correlation_data {
                    let cut = data.as_bytes().get(..16).unwrap_or(data.as_bytes());
                    reply.correlation_data = Some(Correlation::new(cut));
                }
            }),
        ),
        differs("no expiry", "reply/expiry", on_reply(|reply| reply.message_expiry = None)),
        differs(
            "delete notifications in the dialect of the specification",
            "watch/dialect",
            on_notification(|notification| {
                payload(
                    notification,
                    "*2\r\n$6\r\nNOTIFY\r\n$6\r\nDELETE\r\n",
                    "*2\r\n$6\r\nNOTIFY\r\n$3\r\nDEL\r\n",
                );
            }),
        ),
        differs(
            "replies in the dialect of the specification",
            "condition/dialect",
            on_reply(|reply| payload(reply, ":-1\r\n", "-1\r\n")),
        ),
    ]
}

pub(super) fn requests() -> Vec<Broken> {
    vec![
        differs(
            "QoS 2 is accepted",
            "request/qos-2",
            on_request(|request, _| request.qos = Qos::AtLeastOnce),
        ),
        fails(
            "QoS 0 is accepted",
            "request/qos-0",
            on_request(|request, _| request.qos = Qos::AtLeastOnce),
        ),
        fails(
            "correlation data are invented",
            "request/no-correlation",
            on_request(|request, _| {
                if request.correlation_data.is_none() {
                    request.correlation_data = Some(Correlation::new(b"made up"));
                }
            }),
        ),
        differs(
            "a response topic is invented",
            "request/no-response-topic",
            on_request(|request, _| {
                if request.response_topic.is_none() {
                    request.response_topic = Some("made/up".into());
                }
            }),
        ),
        fails(
            "any response topic is accepted",
            "request/reserved-response",
            on_request(|request, _| {
                if request
                    .response_topic
                    .as_deref()
                    .is_some_and(|topic| topic.starts_with("clients/statestore/"))
                {
                    request.response_topic = Some("made/up".into());
                }
            }),
        ),
        differs(
            "any number of levels is accepted",
            "request/levels-of-response",
            on_request(|request, _| {
                if request.response_topic.as_deref().is_some_and(|topic| topic.starts_with("l/")) {
                    request.response_topic = Some("made/up".into());
                }
            }),
        ),
        fails(
            "the request topic is accepted as a response topic",
            "request/topic-as-response",
            on_request(|request, _| {
                if request.response_topic.as_deref() == Some(topic::REQUEST) {
                    request.response_topic = Some("made/up".into());
                }
            }),
        ),
        differs(
            "a chunk is a request",
            "request/chunks",
            on_request(|request, _| set_property(request, "__chunk", None)),
        ),
        fails(
            "unknown properties are refused",
            "request/other-properties",
            on_request(|request, _| {
                if property(request, "traceparent").is_some() {
                    request.payload = b"*0\r\n".as_slice().into();
                }
            }),
        ),
    ]
}
