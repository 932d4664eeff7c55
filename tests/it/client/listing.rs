//! SCAN requests and their pages.

use bytes::Bytes;
use statestore_proto::client::{Event, Outcome, Request, RequestError, SubmitError};
use statestore_proto::message::{Refusal, RequestKind, ServiceError};

use super::{Rig, get};

#[test]
fn scan_is_encoded_and_its_page_decoded() {
    let mut rig = Rig::ready();
    let id = rig.submit(Request::scan("key*", None));
    let publish = rig.published();
    assert_eq!(&publish.payload[..], b"*2\r\n$4\r\nSCAN\r\n$4\r\nkey*\r\n");
    rig.reply(&publish, "*2\r\n*2\r\n$4\r\nkey1\r\n$4\r\nkey2\r\n$4\r\n1;1;\r\n", None);
    let (of, outcome) = rig.completed();
    assert!(of == id && !outcome.may_be_applied());
    assert_eq!(outcome.clone().into_value(), Err(RequestError::OtherCommand));
    let page = outcome.into_page().unwrap();
    assert!(page.shared_keys().eq(["key1", "key2"]));
    let token = page.shared_token();
    assert_eq!(token, Some(Bytes::from_static(b"1;1;")));

    rig.submit(Request::scan("key*", token));
    let publish = rig.published();
    assert_eq!(&publish.payload[..], b"*3\r\n$4\r\nSCAN\r\n$4\r\nkey*\r\n$4\r\n1;1;\r\n");
    rig.reply(&publish, "*1\r\n*0\r\n", Some("9:0:StateStore"));
    let page = rig.completed().1.into_page().unwrap();
    assert_eq!((page.len(), page.shared_token()), (0, None));
    assert_eq!(rig.client.counters().of(RequestKind::Scan).applied, 2);
}

#[test]
fn a_reply_that_is_not_a_page_is_an_error() {
    let mut rig = Rig::ready();
    let mut complete = |payload: &'static str, request: Request| {
        rig.submit(request);
        let publish = rig.published();
        rig.reply(&publish, payload, None);
        rig.completed().1
    };
    let scan = || Request::scan("k", None);
    let refused = complete("-ERR syntax error\r\n", scan().into()).into_page();
    assert_eq!(refused, Err(RequestError::Refused(ServiceError::Known(Refusal::Syntax))));
    for payload in ["+OK\r\n", "$-1\r\n", "*0\r\n", "*1\r\n*1\r\n", "*1\r\n*0\r\nx", ""] {
        let outcome = complete(payload, scan().into());
        assert!(matches!(outcome, Outcome::Malformed(_)), "{payload:?}: {outcome:?}");
        assert!(matches!(outcome.into_page(), Err(RequestError::Malformed(_))));
    }
    assert!(matches!(complete("*1\r\n*0\r\n", get().into()), Outcome::Malformed(_)));
    assert_eq!(complete("$1\r\nv\r\n", get().into()).into_page(), Err(RequestError::OtherCommand));
}

#[test]
fn only_an_empty_pattern_is_refused_by_the_client() {
    let mut rig = Rig::ready();
    let empty = rig.client.submit(rig.now(), Request::scan("", None));
    assert_eq!(empty, Err(SubmitError::EmptyPattern));
    rig.submit(Request::scan("[", None));
    rig.submit(Request::scan(vec![b'*'; 70_000], None));
    assert_eq!(rig.events(), Vec::<Event>::new());
    let request = Request::from(Request::scan("k*", Some(Bytes::from_static(b"t"))));
    assert_eq!((request.kind(), request.command()), (RequestKind::Scan, None));
    assert_eq!(request.subject(), "k*");
}
