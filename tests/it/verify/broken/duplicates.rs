use std::collections::BTreeMap;

use statestore_loopback::Tamper;
use statestore_proto::topic;

use super::{
    Broken, Words, answers_instead, asked, differs, fails, is, set_property, stamped, wall, words,
};

pub(super) fn duplicates() -> Vec<Broken> {
    // What has another stamp is another request.
    let anew = || {
        let mut count = 0;
        stamped("__ts", move |_, text| {
            count += 1;
            Some(format!("{}:{count}:verify", wall(text).unwrap_or_default()))
        })
    };
    vec![
        fails("each delivery is applied", "duplicate/set", anew()),
        fails("each delivery removes", "duplicate/del", {
            let mut count = 0_u64;
            asked(move |request, words| {
                if words.first().is_some_and(|verb| verb.ends_with(b"DEL")) {
                    count += 1;
                    set_property(request, "__ts", Some(format!("{count}:0:verify")));
                }
            })
        }),
        fails("each delivery is told", "duplicate/told-once", anew()),
        differs("STOP ends every KEYNOTIFY of before", "duplicate/watch", {
            let mut stopped = false;
            answers_instead(move |_, words| {
                let is_again = stopped && is(words, "KEYNOTIFY");
                stopped |= words.len() == 3 && is(words, "KEYNOTIFY");
                (is_again && words.len() == 3).then_some(":0\r\n")
            })
        }),
        differs("GET is remembered", "duplicate/get", remembers(|words| is(words, "GET"))),
        differs("correlation data are all that counts", "duplicate/other-request", {
            let mut first: BTreeMap<Vec<u8>, bytes::Bytes> = BTreeMap::new();
            asked(move |request, _| {
                if let Some(data) = &request.correlation_data {
                    let payload = first.entry(data.as_bytes().to_vec());
                    request.payload = payload.or_insert_with(|| request.payload.clone()).clone();
                }
            })
        }),
        fails("clients are not told apart", "duplicate/other-client", remembers(|_| true)),
    ]
}

/// The first answer to each correlation data counts for ever.
fn remembers(is_remembered: fn(&Words) -> bool) -> Tamper {
    let mut answers: BTreeMap<Vec<u8>, Option<(bytes::Bytes, String)>> = BTreeMap::new();
    Box::new(move |message| {
        let name = message.correlation_data.as_ref().map(|data| data.as_bytes().to_vec());
        let Some(name) = name else { return };
        if *message.topic == *topic::REQUEST {
            if is_remembered(&words(&message.payload).unwrap_or_default()) {
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
