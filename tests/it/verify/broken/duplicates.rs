use std::collections::BTreeMap;

use statestore_proto::topic;
use statestore_sim::Interceptor;

use super::{
    Broken, Words, differs, fails, is, on_clock_value, on_request, replace_reply, set_property,
    wall, words,
};

pub(super) fn duplicates() -> Vec<Broken> {
    // A request with another timestamp is another request.
    let retimestamped = || {
        let mut count = 0;
        on_clock_value("__ts", move |_, text| {
            count += 1;
            Some(format!("{}:{count}:verify", wall(text).unwrap_or_default()))
        })
    };
    vec![
        fails("each delivery is applied", "duplicate/set", retimestamped()),
        fails("each delivery removes", "duplicate/del", {
            let mut count = 0_u64;
            on_request(move |request, words| {
                if words.first().is_some_and(|verb| verb.ends_with(b"DEL")) {
                    count += 1;
                    set_property(request, "__ts", Some(format!("{count}:0:verify")));
                }
            })
        }),
        fails("each delivery is notified", "duplicate/notified-once", retimestamped()),
        differs("a duplicate of STOP gets another reply", "duplicate/watch", {
            let mut stopped = false;
            replace_reply(move |_, words| {
                let is_again = stopped && is(words, "KEYNOTIFY");
                stopped |= words.len() == 3 && is(words, "KEYNOTIFY");
                (is_again && words.len() == 3).then_some(":0\r\n")
            })
        }),
        differs("GET is cached", "duplicate/get", caches(|words| is(words, "GET"))),
        differs("duplicates are found by correlation data alone", "duplicate/other-request", {
            let mut first: BTreeMap<Vec<u8>, bytes::Bytes> = BTreeMap::new();
            on_request(move |request, _| {
                if let Some(data) = &request.correlation_data {
                    let payload = first.entry(data.as_bytes().to_vec());
                    request.payload = payload.or_insert_with(|| request.payload.clone()).clone();
                }
            })
        }),
        fails(
            "duplicates are found regardless of the client",
            "duplicate/other-client",
            caches(|_| true),
        ),
    ]
}

/// Replies to each correlation data with the first reply, forever.
fn caches(is_cached: fn(&Words) -> bool) -> Interceptor {
    let mut answers: BTreeMap<Vec<u8>, Option<(bytes::Bytes, String)>> = BTreeMap::new();
    Box::new(move |message| {
        let name = message.correlation_data.as_ref().map(|data| data.as_bytes().to_vec());
        let Some(name) = name else { return };
        if *message.topic == *topic::REQUEST {
            if is_cached(&words(&message.payload).unwrap_or_default()) {
                answers.entry(name).or_default();
            }
        } else if let Some(answer) = answers.get_mut(&name) {
            match answer {
                Some((payload, _)) => message.payload = payload.clone(),
                None => *answer = Some((message.payload.clone(), String::new())),
            }
        }
    })
}
