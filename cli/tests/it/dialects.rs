//! Both dialects, byte for byte: payload, topic and properties of every reply and notification.

use bytes::Bytes;
use statestore_testkit::wire::packets::{Publish, Qos};
use statestore_testkit::wire::raw::{Raw, RawRequest, array, notification_topic, property};

use crate::deployment::{Deployment, Mode, in_each_mode};

in_each_mode!(
    response_has_the_dialect_of_its_request,
    pinned_dialect_is_used_for_all_clients,
    notifications_match_byte_for_byte,
    registration_belongs_to_client_and_key,
);

/// The forms in which the two dialects differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Forms {
    not_applied: &'static [u8],
    deleted: &'static [u8],
}

const PAGE: Forms =
    Forms { not_applied: b"-1\r\n", deleted: b"*2\r\n$6\r\nNOTIFY\r\n$3\r\nDEL\r\n" };
const DEPLOYED: Forms =
    Forms { not_applied: b":-1\r\n", deleted: b"*2\r\n$6\r\nNOTIFY\r\n$6\r\nDELETE\r\n" };

pub(crate) type AskIn = fn(&str, Vec<u8>) -> RawRequest;

/// A requester of each dialect.
pub(crate) const REQUESTERS: [(AskIn, Forms); 2] = [
    (|id, payload| RawRequest::minimal(id, payload), PAGE),
    (|id, payload| RawRequest::deployed(id, payload), DEPLOYED),
];

/// The expected `__ts` of a message.
enum Stamp {
    None,
    /// A version that the store has just issued.
    New,
    /// The version that was issued last.
    Last,
}

/// Asserts that a publish matches exactly, and returns its version.
#[track_caller]
fn is_exactly(
    packet: &Publish,
    topic: &str,
    correlation: Option<&[u8]>,
    payload: &[u8],
    stamp: Option<&str>,
) {
    assert_eq!(packet.payload.escape_ascii().to_string(), payload.escape_ascii().to_string());
    assert_eq!(packet.topic, topic.as_bytes());
    assert_eq!((packet.qos, packet.retain, packet.dup), (Qos::AtLeastOnce, false, false));
    let properties = packet.properties.clone().expect("properties");
    let mut expected: Vec<(String, String)> = Vec::new();
    expected.extend(stamp.map(|stamp| ("__ts".into(), stamp.into())));
    expected.extend(correlation.map(|_| ("__stat".into(), "200".into())));
    assert_eq!(properties.user_properties, expected);
    assert_eq!(properties.correlation_data, correlation.map(Bytes::copy_from_slice));
    assert_eq!((properties.response_topic, properties.topic_alias), (None, None));
    let content_type = properties.content_type.as_deref();
    assert!(matches!(content_type, None | Some("application/octet-stream")), "{content_type:?}");
}

/// Sends a request, asserts that the reply matches exactly, and returns its version.
#[track_caller]
fn exchange(raw: &mut Raw, ask: &RawRequest, payload: &[u8], stamp: Stamp, last: &mut String) {
    let reply = raw.ask(ask);
    let version = property(&reply, "__ts").map(str::to_owned);
    let expected = match stamp {
        Stamp::None => None,
        Stamp::Last => Some(last.clone()),
        Stamp::New => {
            let version = version.expect("a version");
            assert!(order(&version) > order(last), "{version} after {last}");
            last.clone_from(&version);
            Some(version)
        }
    };
    let topic = ask.response_topic.as_deref().expect("a response topic");
    is_exactly(&reply, topic, ask.correlation.as_deref(), payload, expected.as_deref());
}

/// The parts of a version that the store issues in bare form.
pub(crate) fn order(version: &str) -> (u64, u64) {
    let mut parts = version.splitn(3, ':');
    let mut number = || {
        let part = parts.next().expect("a number");
        let number: u64 = part.parse().expect("digits");
        assert_eq!(number.to_string(), part, "no padding");
        number
    };
    let order = (number(), number());
    assert_eq!(parts.next(), Some("StateStore"), "{version}");
    order
}

/// Sends requests with every verb, and receives every kind of reply.
fn round(raw: &mut Raw, id: &str, ask: AskIn, forms: Forms, last: &mut String) {
    let mut case = |elements: &[&[u8]], payload: &[u8], stamp: Stamp| {
        exchange(raw, &ask(id, array(elements)), payload, stamp, last);
    };
    let refused = forms.not_applied;
    case(&[b"GET", b"k"], b"$-1\r\n", Stamp::None);
    case(&[b"DEL", b"k"], b":0\r\n", Stamp::None);
    case(&[b"VDEL", b"k", b"v"], b":0\r\n", Stamp::None);
    case(&[b"SET", b"k", b"v"], b"+OK\r\n", Stamp::New);
    case(&[b"SET", b"k", b"\r\n$-1\r\n"], b"+OK\r\n", Stamp::New);
    case(&[b"GET", b"k"], b"$7\r\n\r\n$-1\r\n\r\n", Stamp::Last);
    case(&[b"SET", b"k", b"w", b"NX"], refused, Stamp::Last);
    case(&[b"SET", b"k", b"w", b"NEX"], refused, Stamp::Last);
    case(&[b"SET", b"k", b"w", b"PX", b"9999", b"NX"], refused, Stamp::Last);
    case(&[b"VDEL", b"k", b"w"], refused, Stamp::Last);
    case(&[b"SET", b"k", b"w", b"NEX", b"\r\n$-1\r\n"], b"+OK\r\n", Stamp::New);
    case(&[b"SET", b"k", b"w", b"NEX", b"PX", b"99999"], b"+OK\r\n", Stamp::New);
    case(&[b"VDEL", b"k", b"w"], b":1\r\n", Stamp::Last);
    case(&[b"SET", b"k", b"", b"NX"], b"+OK\r\n", Stamp::New);
    case(&[b"GET", b"k"], b"$0\r\n\r\n", Stamp::Last);
    case(&[b"DEL", b"k"], b":1\r\n", Stamp::Last);
    case(&[b"KEYNOTIFY", b"other", b"STOP"], b":0\r\n", Stamp::None);
    case(&[b"KEYNOTIFY", b"other"], b"+OK\r\n", Stamp::None);
    case(&[b"KEYNOTIFY", b"other"], b"+OK\r\n", Stamp::None);
    case(&[b"KEYNOTIFY", b"other", b"STOP"], b"+OK\r\n", Stamp::None);
    case(&[b"KEYNOTIFY", b"other", b"STOP"], b":0\r\n", Stamp::None);
    case(&[b"NOP", b"k"], b"-ERR unknown command\r\n", Stamp::None);
    case(&[b"GET", b"k", b"l"], b"-ERR wrong number of arguments\r\n", Stamp::None);
    case(&[b"SET", b"k", b"v", b"XX"], b"-ERR syntax error\r\n", Stamp::None);
    case(&[b"GET", b""], b"-ERR the key length is zero\r\n", Stamp::None);
}

fn rounds(here: &Deployment, forms: [Forms; 2]) {
    let (id, mut last) = ("client-id1", "0:0:StateStore".to_owned());
    let mut raw = here.raw(id);
    // The response topics that deployed clients use work like the recommended one.
    let other = "clients/client-id1/replies";
    raw.subscribe(other);
    for ((ask, _), forms) in REQUESTERS.into_iter().zip(forms) {
        round(&mut raw, id, ask, forms, &mut last);
        let mut elsewhere = ask(id, array(&[b"GET", b"k"]));
        elsewhere.response_topic = Some(other.into());
        exchange(&mut raw, &elsewhere, b"$-1\r\n", Stamp::None, &mut last);
    }
    assert!(raw.receives_nothing_more());
}

fn response_has_the_dialect_of_its_request(mode: Mode) {
    let Some(here) = mode.start(&["--dialect", "auto"]) else { return };
    rounds(&here, REQUESTERS.map(|(_, forms)| forms));
}

fn pinned_dialect_is_used_for_all_clients(mode: Mode) {
    for (option, forms) in [("spec", PAGE), ("deployed", DEPLOYED)] {
        let Some(here) = mode.start(&["--dialect", option]) else { return };
        rounds(&here, [forms; 2]);
        let mut raw = here.raw("watcher");
        for ask in REQUESTERS.map(|(ask, _)| ask) {
            raw.answer(&ask("watcher", array(&[b"KEYNOTIFY", b"k"])));
            raw.answer(&ask("watcher", array(&[b"SET", b"k", b"v"])));
            raw.notification();
            raw.answer(&ask("watcher", array(&[b"DEL", b"k"])));
            assert_eq!(raw.notification().payload, forms.deleted);
        }
    }
}

fn notifications_match_byte_for_byte(mode: Mode) {
    let Some(here) = mode.start(&[]) else { return };
    let mut writer = here.raw("writer");
    let key = b"SOME\r\nKEY";
    for (at, (ask, forms)) in REQUESTERS.into_iter().enumerate() {
        // The embedded broker rejects a slash in a client id.
        let other =
            if mode.has_external_broker() { "other/client \u{fc}" } else { "other client \u{fc}" };
        let id = ["client-id1", other][at];
        let (mut raw, mut last) = (here.raw(id), "0:0:StateStore".to_owned());
        exchange(
            &mut raw,
            &ask(id, array(&[b"KEYNOTIFY", key])),
            b"+OK\r\n",
            Stamp::None,
            &mut last,
        );
        let topic = notification_topic(id, Some(key));
        let mut step = |elements: &[&[u8]], reply: &[u8], stamp: Stamp, packet: Option<&[u8]>| {
            let ask = RawRequest::minimal("writer", array(elements));
            exchange(&mut writer, &ask, reply, stamp, &mut last);
            if let Some(packet) = packet {
                is_exactly(&raw.notification(), &topic, None, packet, Some(&last));
            }
        };
        let set = b"*4\r\n$6\r\nNOTIFY\r\n$3\r\nSET\r\n$5\r\nVALUE\r\n$2\r\n\r\n\r\n";
        let empty = b"*4\r\n$6\r\nNOTIFY\r\n$3\r\nSET\r\n$5\r\nVALUE\r\n$0\r\n\r\n";
        step(&[b"DEL", key], b":0\r\n", Stamp::None, None);
        step(&[b"SET", key, b"\r\n"], b"+OK\r\n", Stamp::New, Some(set));
        step(&[b"SET", key, b"\r\n"], b"+OK\r\n", Stamp::New, Some(set));
        step(&[b"SET", key, b"x", b"NX"], b"-1\r\n", Stamp::Last, None);
        step(&[b"VDEL", key, b"x"], b"-1\r\n", Stamp::Last, None);
        step(&[b"VDEL", key, b"\r\n"], b":1\r\n", Stamp::Last, Some(forms.deleted));
        step(&[b"SET", key, b""], b"+OK\r\n", Stamp::New, Some(empty));
        step(&[b"SET", b"another", b"v"], b"+OK\r\n", Stamp::New, None);
        step(&[b"SET", key, b""], b"+OK\r\n", Stamp::New, Some(empty));
        step(&[b"DEL", key], b":1\r\n", Stamp::Last, Some(forms.deleted));
        assert!(raw.receives_nothing_more());
        // Notifications of changes before the STOP precede its reply. None follow it.
        for elements in [&[&b"SET"[..], key, b"mine"][..], &[b"KEYNOTIFY", key, b"STOP"]] {
            raw.send(&ask(id, array(elements)));
        }
        assert_eq!(raw.reply().payload, &b"+OK\r\n"[..]);
        assert_eq!(raw.reply().payload, &b"+OK\r\n"[..]);
        assert!(raw.notification().payload.ends_with(b"$4\r\nmine\r\n"), "also for its own writes");
        assert_eq!(writer.answer(&RawRequest::minimal("writer", array(&[b"DEL", key]))), b":1\r\n");
        assert!(raw.receives_nothing_more());
    }
}

fn registration_belongs_to_client_and_key(mode: Mode) {
    let Some(here) = mode.start(&[]) else { return };
    let (mut one, mut two) = (here.raw("one"), here.raw("two"));
    // The last registration of a key counts, with its dialect.
    one.answer(&RawRequest::deployed("one", array(&[b"KEYNOTIFY", b"k"])));
    one.answer(&RawRequest::minimal("one", array(&[b"KEYNOTIFY", b"k"])));
    two.answer(&RawRequest::deployed("two", array(&[b"KEYNOTIFY", b"k"])));
    two.answer(&RawRequest::minimal("two", array(&[b"KEYNOTIFY", b"K"])));
    one.answer(&RawRequest::deployed("one", array(&[b"SET", b"k", b"v"])));
    one.answer(&RawRequest::deployed("one", array(&[b"DEL", b"k"])));
    for (raw, forms) in [(&mut one, PAGE), (&mut two, DEPLOYED)] {
        assert!(raw.notification().payload.ends_with(b"$1\r\nv\r\n"));
        assert_eq!(raw.notification().payload, forms.deleted);
        assert!(raw.receives_nothing_more());
    }
    // STOP of one client does not affect the other client.
    assert_eq!(
        one.answer(&RawRequest::minimal("one", array(&[b"KEYNOTIFY", b"k", b"STOP"]))),
        b"+OK\r\n"
    );
    one.answer(&RawRequest::minimal("one", array(&[b"SET", b"k", b"w"])));
    assert!(two.notification().payload.ends_with(b"$1\r\nw\r\n"));
    assert!(one.receives_nothing_more() && two.receives_nothing_more());
}
