use std::collections::BTreeSet;

use statestore_proto::topic;
use statestore_proto::transport::Qos;
use statestore_sim::Message;

use super::{
    Broken, Words, differs, fails, is, is_notification, lose, now, on_notification, on_words,
    replace_reply, set_property, without, words,
};

pub(super) fn expiry() -> Vec<Broken> {
    let without_px = |words: &mut Words| {
        if let Some(at) = words.iter().skip(3).position(|word| word == b"PX") {
            words.drain(at + 3..(at + 5).min(words.len()));
        }
    };
    vec![
        fails("nothing expires", "expiry/expires", on_words(without_px)),
        fails(
            "milliseconds are seconds",
            "expiry/expires",
            on_words(|words| {
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
            on_words(|words| {
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
            on_words(move |words| {
                if words.get(3).is_some_and(|option| option == b"NX") {
                    without_px(words);
                }
            }),
        ),
        fails(
            "an expiry of a second never ends",
            "expiry/expires",
            on_words(move |words| {
                if words.get(4).is_some_and(|px| px == b"1000") {
                    without_px(words);
                }
            }),
        ),
        fails(
            "milliseconds of 31 bits",
            "expiry/expires",
            on_words(|words| {
                if let Some(px) = words.get_mut(4).filter(|px| px.len() >= 10) {
                    *px = b"1".to_vec();
                }
            }),
        ),
        fails(
            "an expiry is not renewed",
            "expiry/restarts",
            on_words(move |words| {
                if words.get(3).is_some_and(|option| option == b"NEX") {
                    without_px(words);
                }
            }),
        ),
        differs(
            "an expiry stays",
            "expiry/removed",
            on_words(|words| {
                if is(words, "SET") && words.len() == 3 {
                    words.extend([b"PX".to_vec(), b"250".to_vec()]);
                }
            }),
        ),
        fails("a refused SET changes the expiry", "expiry/refused", {
            let mut last: Option<Vec<u8>> = None;
            replace_reply(move |_, words| {
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
        fails(
            "notifications at QoS 0",
            "watch/set",
            on_notification(|notification| notification.qos = Qos::AtMostOnce),
        ),
        fails(
            "notified values are truncated",
            "watch/set",
            on_notification(|notification| {
                if notification.payload.len() > 100 {
                    notification.payload =
                        "*4\r\n$6\r\nNOTIFY\r\n$3\r\nSET\r\n$5\r\nVALUE\r\n$2\r\nva\r\n".into();
                }
            }),
        ),
        fails("notifications are lost", "watch/set", on_notification(lose)),
        fails(
            "topics in lower case",
            "watch/set",
            on_notification(|notification| {
                let at = notification.topic.rfind('/').unwrap_or_default();
                let (head, key) = notification.topic.split_at(at);
                notification.topic = format!("{head}{}", key.to_lowercase()).into();
            }),
        ),
        fails(
            "notifications have no version",
            "watch/set",
            on_notification(|notification| set_property(notification, "__ts", None)),
        ),
        fails(
            "notifications carry another value",
            "watch/set",
            on_notification(move |notification| {
                if !is_delete(notification) {
                    notification.payload =
                        "*4\r\n$6\r\nNOTIFY\r\n$3\r\nSET\r\n$5\r\nVALUE\r\n$1\r\nx\r\n".into();
                }
            }),
        ),
    ]
}

pub(super) fn removals() -> Vec<Broken> {
    vec![
        fails(
            "deletes are not notified",
            "watch/removed",
            on_notification(move |notification| {
                if is_delete(notification) {
                    lose(notification);
                }
            }),
        ),
        fails(
            "deletes are notified with an unknown verb",
            "watch/removed",
            on_notification(move |notification| {
                if is_delete(notification) {
                    notification.payload = "*2\r\n$6\r\nNOTIFY\r\n$7\r\nREMOVED\r\n".into();
                }
            }),
        ),
        fails("expiries are not notified", "watch/expired", {
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
            "expiries have a new version",
            "watch/expired-version",
            on_notification(move |notification| {
                if is_delete(notification) {
                    set_property(
                        notification,
                        "__ts",
                        Some(format!("{}:0:StateStore", now() + 1_000)),
                    );
                }
            }),
        ),
    ]
}

pub(super) fn senders() -> Vec<Broken> {
    vec![
        fails("a client's own writes are not notified", "watch/own", {
            let mut sender = String::new();
            Box::new(move |message| {
                if *message.topic == *topic::REQUEST {
                    sender = hex::encode_upper(&*message.sender);
                } else if is_notification(message) && message.topic.contains(&sender) {
                    lose(message);
                }
            })
        }),
        fails("every second change is not notified", "watch/each", {
            let mut count = 0;
            on_notification(move |notification| {
                count += 1;
                if count % 2 == 0 {
                    lose(notification);
                }
            })
        }),
    ]
}

pub(super) fn watches() -> Vec<Broken> {
    vec![
        fails(
            "KEYNOTIFY accepts only existing keys",
            "watch/absent",
            replace_reply(|_, words| is(words, "KEYNOTIFY").then_some(":0\r\n")),
        ),
        fails(
            "writes that are not applied are notified",
            "watch/no-change",
            on_words(|words| without(words, b"NX")),
        ),
        fails("a second KEYNOTIFY ends the registration", "watch/again", {
            let mut watched = BTreeSet::new();
            on_words(move |words| {
                if is(words, "KEYNOTIFY") && words.len() == 2 && !watched.insert(words[1].clone()) {
                    words.push(b"STOP".to_vec());
                }
            })
        }),
        fails(
            "STOP is ignored",
            "watch/stop",
            on_words(|words| {
                if is(words, "KEYNOTIFY") {
                    words.truncate(2);
                }
            }),
        ),
        fails("notifications before STOP are dropped", "watch/before-stop", on_notification(lose)),
        fails("all notifications go to one client", "watch/by-client", {
            on_notification(|notification| {
                let parts: Vec<&str> = notification.topic.split('/').collect();
                let topic = [&parts[..4], &[&*hex::encode_upper("verify-b")], &parts[5..]]
                    .concat()
                    .join("/");
                notification.topic = topic.into();
            })
        }),
        fails(
            "keys are patterns",
            "watch/literal",
            on_words(|words| {
                if is(words, "KEYNOTIFY") && words[1].ends_with(b"*") {
                    words[1].pop();
                    words[1].push(b'k');
                }
            }),
        ),
        fails(
            "KEYNOTIFY accepts only text keys",
            "watch/binary",
            replace_reply(|_, words| {
                let is_text = words.get(1).is_none_or(|key| std::str::from_utf8(key).is_ok());
                (is(words, "KEYNOTIFY") && !is_text).then_some("-ERR syntax error\r\n")
            }),
        ),
        fails("a notification without a subscriber ends its registration", "watch/unsubscribed", {
            let mut changed = BTreeSet::new();
            replace_reply(move |message, words| {
                if is(words, "SET") {
                    changed.insert(words[1].clone());
                }
                let is_stop = is(words, "KEYNOTIFY") && words.len() == 3;
                let is_unsubscribed = message.sender.ends_with("unsubscribed");
                (is_stop && is_unsubscribed && changed.remove(&words[1])).then_some(":0\r\n")
            })
        }),
        differs("registrations outlive connections", "watch/ends", {
            let mut watched = BTreeSet::new();
            replace_reply(move |_, words| {
                let known = is(words, "KEYNOTIFY") && !watched.insert(words[1].clone());
                known.then_some("+OK\r\n")
            })
        }),
    ]
}
