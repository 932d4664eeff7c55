//! Building requests and reading outcomes.

use std::time::Duration;

use bytes::Bytes;
use statestore_proto::client::{
    IntoBytes, Outcome, Removal, Request, RequestError, SubmitError, VersionedValue,
};
use statestore_proto::message::{
    self, Command, Condition, Expiry, Refusal, Reply, RequestKind, Response, Scan, ServiceError,
};
use statestore_proto::transport::ReasonCode;

use super::{Rig, version};

fn replied(reply: Reply<Bytes>) -> Outcome {
    Outcome::Responded {
        response: Response::Reply(reply),
        version: Some(version("5:0:s")),
        incarnation: None,
    }
}

fn bare(reply: Reply<Bytes>) -> Outcome {
    Outcome::Responded { response: Response::Reply(reply), version: None, incarnation: None }
}

/// Every outcome without a usable reply, its error, and whether a write may have been applied.
fn failures() -> Vec<(Outcome, RequestError, bool)> {
    let refused = ServiceError::Known(Refusal::NotAuthorized);
    let reason = ReasonCode::NOT_AUTHORIZED;
    let malformed = Command::decode(b"*1\r\n").unwrap_err();
    vec![
        (bare(Reply::Error(refused.clone())), RequestError::Refused(refused), false),
        (Outcome::Undelivered(reason), RequestError::Undelivered(reason), false),
        (Outcome::TimedOut { sent: false }, RequestError::NotSent, false),
        (Outcome::Cancelled { sent: false }, RequestError::Cancelled { sent: false }, false),
        (Outcome::TimedOut { sent: true }, RequestError::TimedOut, true),
        (Outcome::Cancelled { sent: true }, RequestError::Cancelled { sent: true }, true),
        (Outcome::ConnectionLost, RequestError::ConnectionLost, true),
        (Outcome::Malformed(malformed), RequestError::Malformed(malformed), true),
    ]
}

#[test]
fn replies_are_read_by_the_verb_of_the_request() {
    let value = Bytes::from_static(b"v");
    let found = VersionedValue { value: value.clone(), version: Some(version("5:0:s")) };
    assert_eq!(replied(Reply::Value(value)).into_value(), Ok(Some(found)));
    assert_eq!(bare(Reply::Absent).into_value(), Ok(None));
    assert_eq!(replied(Reply::Done).into_version(), Ok(Some(version("5:0:s"))));
    assert_eq!(replied(Reply::NotApplied).into_version(), Ok(None));
    assert_eq!(bare(Reply::Done).into_version(), Err(RequestError::NoVersion));
    assert_eq!(bare(Reply::Removed).into_removal(), Ok(Removal::Removed));
    assert_eq!(bare(Reply::NothingRemoved).into_removal(), Ok(Removal::NothingRemoved));
    assert_eq!(bare(Reply::NotApplied).into_removal(), Ok(Removal::NotApplied));
    // Replies to another command.
    assert_eq!(bare(Reply::Removed).into_value(), Err(RequestError::OtherCommand));
    assert_eq!(bare(Reply::Removed).into_version(), Err(RequestError::OtherCommand));
    assert_eq!(bare(Reply::Done).into_removal(), Err(RequestError::OtherCommand));
}

#[test]
fn a_missing_reply_is_an_error_that_reports_whether_a_write_may_be_applied() {
    for (outcome, error, may_be_applied) in failures() {
        assert_eq!(outcome.may_be_applied(), may_be_applied, "{outcome:?}");
        assert_eq!(error.may_be_applied(), may_be_applied, "{error:?}");
        let is_refused = error == RequestError::Refused(Refusal::NotAuthorized.into());
        assert_eq!(error.refusal(), is_refused.then_some(Refusal::NotAuthorized), "{error:?}");
        assert_eq!(outcome.clone().into_value(), Err(error.clone()));
        assert_eq!(outcome.clone().into_version(), Err(error.clone()));
        assert_eq!(outcome.into_removal(), Err(error));
    }
    assert!(RequestError::NoVersion.may_be_applied());
    assert!(RequestError::OtherCommand.may_be_applied());
}

#[test]
fn debug_output_hides_the_value() {
    let found = VersionedValue { value: Bytes::from_static(b"secret"), version: None };
    assert_eq!(format!("{found:?}"), "VersionedValue { value: <6 bytes>, version: None }");
}

#[test]
fn requests_accept_all_kinds_of_bytes() {
    let owned = String::from("key");
    let kinds: [Bytes; 11] = [
        Bytes::from_static(b"key").into_bytes(),
        (&Bytes::from_static(b"key")).into_bytes(),
        b"key".to_vec().into_bytes(),
        (&b"key".to_vec()).into_bytes(),
        b"key".to_vec().into_boxed_slice().into_bytes(),
        b"key".as_slice().into_bytes(),
        IntoBytes::into_bytes(owned.clone()),
        (&owned).into_bytes(),
        IntoBytes::into_bytes(Box::<str>::from("key")),
        IntoBytes::into_bytes("key"),
        b"key".into_bytes(),
    ];
    assert!(kinds.iter().all(|kind| kind == "key"), "{kinds:?}");
    assert_eq!([107_u8].into_bytes(), "k");
    let key = || Bytes::from_static(b"k");
    let value = || Bytes::from_static(b"v");
    let command = |request: Request| request.command().cloned();
    assert_eq!(command(Request::get("k").into()), Some(Command::Get { key: key() }));
    assert_eq!(command(Request::del("k").into()), Some(Command::Del { key: key() }));
    let vdel = Command::VDel { key: key(), value: value() };
    assert_eq!(command(Request::vdel("k", "v").into()), Some(vdel));
    let set =
        |condition, expiry| Some(Command::Set { key: key(), value: value(), condition, expiry });
    assert_eq!(command(Request::set("k", "v").into()), set(Condition::Always, None));
    let request = Request::set("k", "v").condition(Condition::IfAbsent);
    let request = request.expires_after(Duration::from_micros(1_500));
    let two = Expiry::after(Duration::from_millis(2));
    assert_eq!(command(request.into()), set(Condition::IfAbsent, two));
    let scan = Scan { pattern: key(), token: Some(value()) };
    for request in [Request::from(scan.clone()), Request::scan("k", Some(value())).into()] {
        assert_eq!((request.command(), request.subject()), (None, &key()));
    }
    let request = message::RequestPayload::Scan(scan);
    assert_eq!(Request::from(request).kind(), RequestKind::Scan);
}

#[test]
fn every_builder_passes_its_options_on() {
    let (token, limit) = (version("5:0:s").to_fencing_token(), Duration::from_secs(3));
    let writes: [Request; 4] = [
        Request::set("k", "v").fencing_token(token.clone()).timeout(limit).into(),
        Request::del("k").fencing_token(token.clone()).timeout(limit).into(),
        Request::vdel("k", "v").fencing_token(token.clone()).timeout(limit).into(),
        Request::new(Command::del(Bytes::from_static(b"k")))
            .with_fencing_token(token.clone())
            .with_timeout(limit),
    ];
    for request in writes {
        assert_eq!((request.fencing_token(), request.timeout()), (Some(&token), Some(limit)));
    }
    let reads: [Request; 2] =
        [Request::get("k").timeout(limit).into(), Request::scan("k", None).timeout(limit).into()];
    for request in reads {
        assert_eq!((request.fencing_token(), request.timeout()), (None, Some(limit)));
    }
    let plain = Request::from(Request::get("k"));
    assert_eq!((plain.fencing_token(), plain.timeout()), (None, None));
}

#[test]
fn zero_expiry_is_rejected() {
    let mut rig = Rig::ready();
    let set = |after| Request::set("k", "v").expires_after(after);
    let now = rig.now();
    assert_eq!(rig.client.submit(now, set(Duration::ZERO)), Err(SubmitError::ZeroExpiry));
    assert_eq!(rig.client.poll_transmit(), None);
    let again = set(Duration::ZERO).expires_after(Duration::from_nanos(1));
    assert!(rig.client.submit(now, again).is_ok());
}

#[test]
fn zero_time_limit_is_rejected() {
    let mut rig = Rig::ready();
    let now = rig.now();
    let get = |limit| Request::get("k").timeout(limit);
    assert_eq!(rig.client.submit(now, get(Duration::ZERO)), Err(SubmitError::ZeroTimeout));
    assert_eq!((rig.client.poll_transmit(), rig.client.outstanding()), (None, 0));
    assert!(rig.client.submit(now, get(Duration::from_nanos(1))).is_ok());
}

#[test]
fn fencing_token_of_a_read_is_rejected() {
    let mut rig = Rig::ready();
    let now = rig.now();
    let token = version("5:0:s").to_fencing_token();
    let reads: [Request; 2] = [Request::get("k").into(), Request::scan("k", None).into()];
    for read in reads {
        let fenced = read.clone().with_fencing_token(token.clone());
        assert_eq!(rig.client.submit(now, fenced), Err(SubmitError::FencingTokenOnRead));
        assert_eq!((rig.client.poll_transmit(), rig.client.outstanding()), (None, 0));
    }
}
