use std::collections::BTreeSet;

use statestore_proto::mqtt::{Correlation, Qos};
use statestore_proto::topic;

use super::{Broken, answered, asked, differs, fails, lose, payload, property, set_property, told};

pub(super) fn replies() -> Vec<Broken> {
    vec![
        fails("clients of the page are not answered", "reply/topic", {
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
            answered(|reply| set_property(reply, "__stat", None)),
        ),
        fails(
            "errors with a status of their own",
            "reply/properties",
            answered(|reply| {
                if reply.payload.starts_with(b"-ERR") {
                    set_property(reply, "__stat", Some("400".into()));
                }
            }),
        ),
        fails("QoS 0", "reply/properties", answered(|reply| reply.qos = Qos::AtMostOnce)),
        fails(
            "a content type of text",
            "reply/properties",
            answered(|reply| reply.content_type = Some("text/plain".into())),
        ),
        fails(
            "the next protocol version",
            "reply/properties",
            answered(|reply| set_property(reply, "__protVer", Some("2.0".into()))),
        ),
        fails(
            "one response topic for all",
            "reply/any-topic",
            answered(|reply| {
                let id = reply.topic.split('/').nth(1).unwrap_or_default();
                let topic =
                    format!("clients/{id}/services/statestore/_any_/command/invoke/response");
                reply.topic = topic.into();
            }),
        ),
        fails(
            "16 bytes of correlation data and no more",
            "reply/correlation",
            answered(|reply| {
                if let Some(data) = &reply.correlation_data {
                    let cut = data.as_bytes().get(..16).unwrap_or(data.as_bytes());
                    reply.correlation_data = Some(Correlation::new(cut));
                }
            }),
        ),
        differs("no expiry", "reply/expiry", answered(|reply| reply.message_expiry = None)),
        differs(
            "deletes in the page's dialect",
            "watch/dialect",
            told(|told| {
                payload(
                    told,
                    "*2\r\n$6\r\nNOTIFY\r\n$6\r\nDELETE\r\n",
                    "*2\r\n$6\r\nNOTIFY\r\n$3\r\nDEL\r\n",
                );
            }),
        ),
        differs(
            "the page's dialect",
            "condition/dialect",
            answered(|reply| payload(reply, ":-1\r\n", "-1\r\n")),
        ),
    ]
}

pub(super) fn requests() -> Vec<Broken> {
    vec![
        differs(
            "QoS 2 will do",
            "request/qos-2",
            asked(|request, _| request.qos = Qos::AtLeastOnce),
        ),
        fails("QoS 0 will do", "request/qos-0", asked(|request, _| request.qos = Qos::AtLeastOnce)),
        fails(
            "correlation data are made up",
            "request/no-correlation",
            asked(|request, _| {
                if request.correlation_data.is_none() {
                    request.correlation_data = Some(Correlation::new(b"made up"));
                }
            }),
        ),
        differs(
            "a response topic is made up",
            "request/no-response-topic",
            asked(|request, _| {
                if request.response_topic.is_none() {
                    request.response_topic = Some("made/up".into());
                }
            }),
        ),
        fails(
            "any response topic will do",
            "request/reserved-response",
            asked(|request, _| {
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
            "any number of levels",
            "request/levels-of-response",
            asked(|request, _| {
                if request.response_topic.as_deref().is_some_and(|topic| topic.starts_with("l/")) {
                    request.response_topic = Some("made/up".into());
                }
            }),
        ),
        fails(
            "the request topic as a response topic",
            "request/topic-as-response",
            asked(|request, _| {
                if request.response_topic.as_deref() == Some(topic::REQUEST) {
                    request.response_topic = Some("made/up".into());
                }
            }),
        ),
        fails(
            "no properties of others",
            "request/other-properties",
            asked(|request, _| {
                if property(request, "traceparent").is_some() {
                    request.payload = b"*0\r\n".as_slice().into();
                }
            }),
        ),
    ]
}
