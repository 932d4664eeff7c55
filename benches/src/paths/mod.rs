//! Calls that run for each request or message. Their instructions are counted, see
//! [`instructions`](crate::instructions).

mod broker;
mod client;
mod codec;
mod packet;
mod session;
mod store;

/// One call, which can be repeated.
#[derive(Debug)]
pub struct HotPath {
    /// Name of the path: what is called, and with what.
    pub name: &'static str,
    /// Number of calls for a count.
    pub repetitions: usize,
    /// Returns the call, after it was executed at least once. `repetitions` calls must be possible.
    pub prepare: fn(repetitions: usize) -> Box<dyn FnMut()>,
}

/// All hot paths.
pub const HOT_PATHS: &[HotPath] = &[
    path("encode/set", codec::encode_set),
    path("decode/set", codec::decode_set),
    path("encode/get-response", codec::encode_get_response),
    path("decode/get-response", codec::decode_get_response),
    path("encode/notification", codec::encode_notification),
    path("decode/notification", codec::decode_notification),
    path("hlc/receive", codec::receive),
    path("hlc/parse", codec::parse),
    path("hlc/encode", codec::encode_hlc),
    path("store/get", store::get),
    path("store/set", store::set),
    path("store/set-10-watchers", store::set_with_10_watchers),
    path("store/lock-acquire-release", store::acquire_and_release),
    path("client/request", client::request),
    path("client/response", client::response),
    path("packet/encode-publish", packet::encode_publish),
    path("packet/decode-publish", packet::decode_publish),
    path("broker/publish-1-subscriber", broker::publish_to_1),
    HotPath {
        name: "broker/publish-100-subscribers",
        repetitions: 50,
        prepare: broker::publish_to_100,
    },
    path("session/publish-out", session::publish_out),
    path("session/publish-in", session::publish_in),
];

const fn path(name: &'static str, prepare: fn(usize) -> Box<dyn FnMut()>) -> HotPath {
    HotPath { name, repetitions: 500, prepare }
}

/// Returns the path of that name.
#[must_use]
pub fn find(name: &str) -> Option<&'static HotPath> {
    HOT_PATHS.iter().find(|path| path.name == name)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_path_returns_the_expected_results_for_all_repetitions() {
        for path in HOT_PATHS {
            let mut call = (path.prepare)(path.repetitions);
            for _ in 0..path.repetitions {
                call();
            }
        }
    }

    #[test]
    fn names_are_unique() {
        let names: BTreeSet<&str> = HOT_PATHS.iter().map(|path| path.name).collect();
        assert_eq!(names.len(), HOT_PATHS.len());
    }
}
