//! Requests with errors outside of their payload are refused or dropped, and the store continues.

use statestore_testkit::vectors::Vectors;
use statestore_testkit::wire::packets::Qos;
use statestore_testkit::wire::raw::{Hello, Raw, RawRequest, array, property};

use crate::deployment::{Mode, in_each_mode};

in_each_mode!(
    request_without_response_topic_is_dropped,
    request_without_a_required_property_is_refused,
    chunks_of_a_request_get_an_error,
    forbidden_response_topics_are_dropped,
    response_rejected_by_the_broker_does_not_end_the_store,
);

/// A request to set this key. Another client can read its outcome.
fn set(client_id: &str, key: &str) -> RawRequest {
    RawRequest::minimal(client_id, array(&[b"SET", key.as_bytes(), b"v"]))
}

/// Returns whether the key has a value.
fn exists(witness: &mut Raw, key: &str) -> bool {
    witness.answer(&RawRequest::minimal("witness", array(&[b"GET", key.as_bytes()]))) != b"$-1\r\n"
}

fn request_without_response_topic_is_dropped(mode: Mode) {
    let Some(here) = mode.start(&[]) else { return };
    let (mut raw, mut witness) = (here.raw("raw"), here.raw("witness"));
    for qos in [Qos::AtLeastOnce, Qos::AtMostOnce] {
        for correlation in [None, Some(vec![1; 16])] {
            let mut ask = set("raw", "k");
            (ask.response_topic, ask.correlation, ask.qos) = (None, correlation, qos);
            raw.send(&ask);
        }
    }
    assert!(raw.receives_nothing_more(), "there is nowhere to answer to");
    assert!(!exists(&mut witness, "k"));
    assert_eq!(raw.answer(&set("raw", "k")), b"+OK\r\n");
}

fn request_without_a_required_property_is_refused(mode: Mode) {
    let Some(here) = mode.start(&[]) else { return };
    let (mut raw, mut witness) = (here.raw("raw"), here.raw("witness"));
    let changed = |change: fn(&mut RawRequest)| {
        let mut ask = set("raw", "k");
        change(&mut ask);
        ask
    };
    for (ask, text) in [
        (changed(|ask| ask.correlation = None), "missing correlation data"),
        (changed(|ask| ask.qos = Qos::AtMostOnce), "the request must be published with QoS 1"),
        (set("raw", "k").without("__ts"), "missing timestamp"),
        (set("raw", "k").replacing("__ts", ""), "malformed timestamp"),
        (set("raw", "k").replacing("__ts", "now"), "malformed timestamp"),
        (set("raw", "k").replacing("__ts", "1:2"), "malformed timestamp"),
        (set("raw", "k").replacing("__ts", "1:2:a:b"), "malformed timestamp"),
        (set("raw", "k").replacing("__ts", "18446744073709551616:0:a"), "malformed timestamp"),
        (set("raw", "k").with("__ft", "1:-1:a"), "malformed timestamp"),
        (set("raw", "k").without("__ts").with("__ft", "x"), "missing timestamp"),
    ] {
        let reply = raw.ask(&ask);
        assert_eq!(reply.payload, format!("-ERR {text}\r\n").as_bytes(), "{ask:?}");
        assert_eq!(property(&reply, "__stat"), Some("200"), "{ask:?}");
        assert_eq!(property(&reply, "__ts"), None, "{ask:?}");
        assert!(!exists(&mut witness, "k"), "{ask:?}");
    }
    // Only SET requires a timestamp, and the store reads fencing tokens of writes only.
    for elements in
        [&[&b"GET"[..], b"k"][..], &[b"DEL", b"k"], &[b"VDEL", b"k", b"v"], &[b"KEYNOTIFY", b"k"]]
    {
        let reply = raw.answer(&RawRequest::minimal("raw", array(elements)).without("__ts"));
        assert!(!reply.starts_with(b"-ERR"), "{elements:?}");
    }
    let read = RawRequest::minimal("raw", array(&[b"GET", b"k"])).with("__ft", "x");
    assert_eq!(raw.answer(&read.replacing("__ts", "y")), b"$-1\r\n");
    assert_eq!(raw.answer(&set("raw", "k")), b"+OK\r\n");
    assert!(exists(&mut witness, "k"));
}

fn chunks_of_a_request_get_an_error(mode: Mode) {
    let Some(here) = mode.start(&[]) else { return };
    let (mut raw, mut witness) = (here.raw("raw"), here.raw("witness"));
    let reply = raw.ask(&set("raw", "k").with("__chunk", "0:3:4096"));
    assert_eq!(property(&reply, "__stat"), Some("200"));
    for value in ["0:3:4096", "1:3:4096", "", "{", &"x:".repeat(20_000)] {
        let reply = raw.answer(&set("raw", "k").with("__chunk", value));
        assert_eq!(reply, b"-ERR chunked requests are not supported\r\n", "{value:.20}");
    }
    assert!(!exists(&mut witness, "k"));
    assert_eq!(raw.answer(&set("raw", "k")), b"+OK\r\n");
}

fn forbidden_response_topics_are_dropped(mode: Mode) {
    let Some(here) = mode.start(&[]) else { return };
    let mut witness = here.raw("witness");
    let cases = Vectors::read("topics-response.txt").unwrap_or_else(|error| panic!("{error}"));
    for (number, case) in cases.cases().iter().enumerate() {
        let topic = case.string("topic").expect("text");
        let allowed = case.text("result") == Ok("allowed");
        let key = format!("key {number}");
        // A broker that verifies client ids does not let clients direct responses to others.
        let named = topic.strip_prefix("clients/").and_then(|below| below.split('/').next());
        let names_nobody = named == Some("");
        let allowed = allowed && !(names_nobody && mode == Mode::Embedded);
        let can_be = |name: &&str| !name.is_empty() && !name.contains('\0');
        let own = named.filter(can_be).filter(|_| mode == Mode::Embedded);
        let id = match own {
            Some(name) => name.to_owned(),
            None => format!("client {number}"),
        };
        // The broker or the store may close the connection of the sender.
        let mut raw = Raw::open(here.port(), &id, Hello::default());
        let mut ask = set(&id, &key);
        ask.response_topic = Some(topic);
        let arrived = raw.deliver(&ask);
        assert!(arrived || !allowed, "{}", case.place());
        assert_eq!(exists(&mut witness, &key), allowed, "{}", case.place());
    }
    assert!(witness.receives_nothing_more());
}

fn response_rejected_by_the_broker_does_not_end_the_store(mode: Mode) {
    let Some(here) = mode.start(&[]) else { return };
    let (mut raw, mut witness) = (here.raw("raw"), here.raw("witness"));
    assert_eq!(witness.answer(&set("witness", "k")), b"+OK\r\n");
    // Some brokers reject the response. Others close the connection of the store and then redeliver
    // the request.
    let mut ask = set("raw", "poison");
    ask.response_topic = Some("$SYS/broker".into());
    raw.deliver(&ask);
    assert!(exists(&mut witness, "k"));
    here.run(&["get", "k"]).is(0, "v");
}
