//! Client ids and topics, as the reference store reads and writes them.

use statestore_proto::topic::RESERVED;

use crate::machines::request::StoreRequest;

pub(super) fn identity(request: &StoreRequest) -> Option<String> {
    let from_topic = || {
        let tail = "/services/statestore/_any_/command/invoke/response";
        let id = request.response_topic.as_ref()?.strip_prefix("clients/")?.strip_suffix(tail)?;
        (!id.is_empty() && !id.contains(['+', '#', '\0'])).then(|| id.to_owned())
    };
    let source = || request.source.clone().filter(|id| !id.is_empty());
    request.verified.clone().or_else(source).or_else(from_topic)
}

pub(super) fn notification_topic(client: &str, key: &[u8]) -> String {
    let (client, key) = (hex::encode_upper(client), hex::encode_upper(key));
    format!("{RESERVED}/{client}/command/notify/{key}")
}
