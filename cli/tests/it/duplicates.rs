//! Duplicates of QoS 1 requests: each has one effect and one response.

use statestore_testkit::wire::raw::{RawRequest, array};

use crate::deployment::{Mode, in_each_mode};
use crate::dialects::REQUESTERS;

in_each_mode!(
    duplicate_request_has_one_effect_and_one_response,
    client_and_response_topic_distinguish_requests
);

fn duplicate_request_has_one_effect_and_one_response(mode: Mode) {
    let Some(here) = mode.start(&[]) else { return };
    let mut raw = here.raw("raw");
    let mut other = here.raw("other");
    other.answer(&RawRequest::minimal("other", array(&[b"KEYNOTIFY", b"k"])));
    for (make, _) in REQUESTERS {
        for (elements, payload, effects) in [
            (&[&b"SET"[..], b"k", b"v", b"NX"][..], &b"+OK\r\n"[..], 1),
            (&[b"SET", b"k", b"v", b"NEX"], b"+OK\r\n", 1),
            (&[b"VDEL", b"k", b"v"], b":1\r\n", 1),
            (&[b"SET", b"k", b"v"], b"+OK\r\n", 1),
            (&[b"DEL", b"k"], b":1\r\n", 1),
            (&[b"DEL", b"k"], b":0\r\n", 0),
            (&[b"KEYNOTIFY", b"mine"], b"+OK\r\n", 0),
            (&[b"KEYNOTIFY", b"mine", b"STOP"], b"+OK\r\n", 0),
        ] {
            let ask = make("raw", array(elements));
            let [mut first, mut second, mut third] = [(); 3].map(|()| raw.ask(&ask));
            for packet in [&mut first, &mut second, &mut third] {
                packet.pkid = 0;
            }
            assert_eq!(first.payload, payload);
            assert!(first == second && second == third, "{first:?} {second:?} {third:?}");
            for _ in 0..effects {
                other.notification();
            }
            assert!(other.receives_nothing_more(), "{elements:?} has one effect");
        }
        // Refused requests behave in the same way. GET only reads, so it returns the current
        // value.
        let refused = make("raw", array(&[b"SET", b"k", b"v", b"XX"]));
        assert_eq!([(); 2].map(|()| raw.answer(&refused)), [b"-ERR syntax error\r\n"; 2]);
        let get = make("raw", array(&[b"GET", b"another"]));
        assert_eq!(raw.answer(&get), b"$-1\r\n");
        raw.answer(&make("raw", array(&[b"SET", b"another", b"v"])));
        assert_eq!(raw.answer(&get), b"$1\r\nv\r\n");
        raw.answer(&make("raw", array(&[b"DEL", b"another"])));
    }
}

fn client_and_response_topic_distinguish_requests(mode: Mode) {
    let Some(here) = mode.start(&[]) else { return };
    let (mut one, mut two) = (here.raw("one"), here.raw("two"));
    let correlation = Some(b"sixteen bytes ..".to_vec());
    let mut ask = RawRequest::deployed("one", array(&[b"SET", b"k", b"v", b"NX"]));
    ask.correlation.clone_from(&correlation);
    assert_eq!(one.answer(&ask), b"+OK\r\n");
    assert_eq!(one.answer(&ask), b"+OK\r\n");
    let mut ask = RawRequest::deployed("two", array(&[b"SET", b"k", b"v", b"NX"]));
    ask.correlation.clone_from(&correlation);
    assert_eq!(two.answer(&ask), b":-1\r\n", "another client's request is another request");
    // Correlation data can be any bytes of any length.
    for (number, data) in
        [&b""[..], b"\0", &[0xff; 16], &[7; 17], &[9; 1_000]].into_iter().enumerate()
    {
        let key = format!("key {number}");
        let mut ask = RawRequest::minimal("one", array(&[b"SET", key.as_bytes(), b"v", b"NX"]));
        ask.correlation = Some(data.to_vec());
        assert_eq!([(); 2].map(|()| one.answer(&ask)), [b"+OK\r\n"; 2], "{number}");
    }
}
