use std::collections::BTreeSet;

use statestore_loopback::Message;
use statestore_proto::mqtt::Qos;
use statestore_proto::topic;

use super::{
    Broken, Words, answers_instead, differs, fails, is, is_notification, lose, now, reworded,
    set_property, told, without, words,
};

pub(super) fn expiry() -> Vec<Broken> {
    let without_px = |words: &mut Words| {
        if let Some(at) = words.iter().skip(3).position(|word| word == b"PX") {
            words.drain(at + 3..(at + 5).min(words.len()));
        }
    };
    vec![
        fails("nothing expires", "expiry/expires", reworded(without_px)),
        fails(
            "milliseconds are seconds",
            "expiry/expires",
            reworded(|words| {
                if let Some(at) = words.iter().skip(3).position(|word| word == b"PX")
                    && let Some(px) = words.get_mut(at + 4)
                {
                    px.extend(b"000");
                }
            }),
        ),
        fails(
            "everything expires at once",
            "expiry/expires",
            reworded(|words| {
                if let Some(at) = words.iter().skip(3).position(|word| word == b"PX")
                    && let Some(px) = words.get_mut(at + 4)
                {
                    *px = b"1".to_vec();
                }
            }),
        ),
        fails(
            "only plain values expire",
            "expiry/expires",
            reworded(move |words| {
                if words.get(3).is_some_and(|option| option == b"NX") {
                    without_px(words);
                }
            }),
        ),
        fails(
            "an expiry of a second is for ever",
            "expiry/expires",
            reworded(move |words| {
                if words.get(4).is_some_and(|px| px == b"1000") {
                    without_px(words);
                }
            }),
        ),
        fails(
            "milliseconds of 31 bits",
            "expiry/expires",
            reworded(|words| {
                if let Some(px) = words.get_mut(4).filter(|px| px.len() >= 10) {
                    *px = b"1".to_vec();
                }
            }),
        ),
        fails(
            "an expiry is not renewed",
            "expiry/counts-anew",
            reworded(move |words| {
                if words.get(3).is_some_and(|option| option == b"NEX") {
                    without_px(words);
                }
            }),
        ),
        differs(
            "an expiry stays",
            "expiry/removed",
            reworded(|words| {
                if is(words, "SET") && words.len() == 3 {
                    words.extend([b"PX".to_vec(), b"250".to_vec()]);
                }
            }),
        ),
        fails("what is refused has its expiry", "expiry/refused", {
            let mut last: Option<Vec<u8>> = None;
            answers_instead(move |_, words| {
                if words.get(3).is_some_and(|option| option == b"NX") {
                    last = words.get(1).cloned();
                }
                (is(words, "GET") && last.is_some() && words.get(1) == last.as_ref())
                    .then_some("$1\r\nv\r\n")
            })
        }),
    ]
}

fn is_delete(message: &Message) -> bool {
    message.payload.starts_with(b"*2")
}

pub(super) fn changes() -> Vec<Broken> {
    vec![
        fails("notifications at QoS 0", "watch/set", told(|told| told.qos = Qos::AtMostOnce)),
        fails(
            "values are told up to ten bytes",
            "watch/set",
            told(|told| {
                if told.payload.len() > 100 {
                    told.payload =
                        "*4\r\n$6\r\nNOTIFY\r\n$3\r\nSET\r\n$5\r\nVALUE\r\n$2\r\nva\r\n".into();
                }
            }),
        ),
        fails("nobody is told", "watch/set", told(lose)),
        fails(
            "topics in lower case",
            "watch/set",
            told(|told| {
                let at = told.topic.rfind('/').unwrap_or_default();
                let (head, key) = told.topic.split_at(at);
                told.topic = format!("{head}{}", key.to_lowercase()).into();
            }),
        ),
        fails("no version is told", "watch/set", told(|told| set_property(told, "__ts", None))),
        fails(
            "another value is told",
            "watch/set",
            told(move |told| {
                if !is_delete(told) {
                    told.payload =
                        "*4\r\n$6\r\nNOTIFY\r\n$3\r\nSET\r\n$5\r\nVALUE\r\n$1\r\nx\r\n".into();
                }
            }),
        ),
        fails(
            "removals are not told",
            "watch/removed",
            told(move |told| {
                if is_delete(told) {
                    lose(told);
                }
            }),
        ),
        fails(
            "removals are told in words of their own",
            "watch/removed",
            told(move |told| {
                if is_delete(told) {
                    told.payload = "*2\r\n$6\r\nNOTIFY\r\n$7\r\nREMOVED\r\n".into();
                }
            }),
        ),
        fails("expiries are not told", "watch/expired", {
            let mut verb = Vec::new();
            Box::new(move |message| {
                if *message.topic == *topic::REQUEST {
                    verb = words(&message.payload).unwrap_or_default().swap_remove(0);
                } else if is_notification(message) && is_delete(message) && !verb.ends_with(b"DEL")
                {
                    lose(message);
                }
            })
        }),
        differs(
            "expiries have a version of their own",
            "watch/expired-version",
            told(move |told| {
                if is_delete(told) {
                    set_property(told, "__ts", Some(format!("{}:0:StateStore", now() + 1_000)));
                }
            }),
        ),
        fails("own writes are not told", "watch/own", {
            let mut sender = String::new();
            Box::new(move |message| {
                if *message.topic == *topic::REQUEST {
                    sender = hex::encode_upper(&*message.sender);
                } else if is_notification(message) && message.topic.contains(&sender) {
                    lose(message);
                }
            })
        }),
        fails("every other change is told", "watch/each", {
            let mut count = 0;
            told(move |told| {
                count += 1;
                if count % 2 == 0 {
                    lose(told);
                }
            })
        }),
    ]
}

pub(super) fn watches() -> Vec<Broken> {
    vec![
        fails(
            "only what exists can be watched",
            "watch/absent",
            answers_instead(|_, words| is(words, "KEYNOTIFY").then_some(":0\r\n")),
        ),
        fails(
            "what is not applied is told",
            "watch/no-change",
            reworded(|words| without(words, b"NX")),
        ),
        fails("whoever watches again watches no more", "watch/again", {
            let mut watched = BTreeSet::new();
            reworded(move |words| {
                if is(words, "KEYNOTIFY") && words.len() == 2 && !watched.insert(words[1].clone()) {
                    words.push(b"STOP".to_vec());
                }
            })
        }),
        fails(
            "STOP is not heard",
            "watch/stop",
            reworded(|words| {
                if is(words, "KEYNOTIFY") {
                    words.truncate(2);
                }
            }),
        ),
        fails("what comes before STOP is dropped", "watch/before-stop", told(lose)),
        fails("one client watches for all", "watch/by-client", {
            told(|told| {
                let parts: Vec<&str> = told.topic.split('/').collect();
                let topic = [&parts[..4], &[&*hex::encode_upper("verify-b")], &parts[5..]]
                    .concat()
                    .join("/");
                told.topic = topic.into();
            })
        }),
        fails(
            "keys are patterns",
            "watch/literal",
            reworded(|words| {
                if is(words, "KEYNOTIFY") && words[1].ends_with(b"*") {
                    words[1].pop();
                    words[1].push(b'k');
                }
            }),
        ),
        fails(
            "keys that are watched are text",
            "watch/binary",
            answers_instead(|_, words| {
                let is_text = words.get(1).is_none_or(|key| std::str::from_utf8(key).is_ok());
                (is(words, "KEYNOTIFY") && !is_text).then_some("-ERR syntax error\r\n")
            }),
        ),
        differs("registrations outlive connections", "watch/ends", {
            let mut watched = BTreeSet::new();
            answers_instead(move |_, words| {
                let known = is(words, "KEYNOTIFY") && !watched.insert(words[1].clone());
                known.then_some("+OK\r\n")
            })
        }),
    ]
}
