//! How requests are made and outcomes are read.

use std::time::Duration;

use bytes::Bytes;
use statestore_proto::client::{
    IntoBytes, Outcome, Removal, Request, RequestError, SubmitError, VersionedValue,
};
use statestore_proto::message::{Command, Condition, Expiry, Refusal, Reply, ServiceError};
use statestore_proto::mqtt::ReasonCode;

use super::{Rig, version};

fn replied(reply: Reply<Bytes>) -> Outcome {
    Outcome::Replied { reply, version: Some(version("5:0:s")), incarnation: None }
}

fn bare(reply: Reply<Bytes>) -> Outcome {
    Outcome::Replied { reply, version: None, incarnation: None }
}

/// Every outcome that is no answer, as an error, and whether a write may have been applied.
fn failures() -> Vec<(Outcome, RequestError, bool)> {
    let refused = ServiceError::Known(Refusal::NotAuthorized);
    let reason = ReasonCode::NOT_AUTHORIZED;
    let malformed = Command::decode(b"*1\r\n").unwrap_err();
    vec![
        (bare(Reply::Error(refused.clone())), RequestError::Refused(refused), false),
        (Outcome::Rejected(reason), RequestError::Undelivered(reason), false),
        (Outcome::TimedOut { sent: false }, RequestError::NotSent, false),
        (Outcome::Cancelled { sent: false }, RequestError::NotSent, false),
        (Outcome::TimedOut { sent: true }, RequestError::TimedOut, true),
        (Outcome::Cancelled { sent: true }, RequestError::Cancelled, true),
        (Outcome::Unknown, RequestError::Unknown, true),
        (Outcome::Malformed(malformed), RequestError::Malformed(malformed), true),
    ]
}

#[test]
fn answers_are_read_as_what_was_asked() {
    let value = Bytes::from_static(b"v");
    let found = VersionedValue { value: value.clone(), version: Some(version("5:0:s")) };
    assert_eq!(replied(Reply::Value(value)).into_value(), Ok(Some(found)));
    assert_eq!(bare(Reply::Absent).into_value(), Ok(None));
    assert_eq!(replied(Reply::Done).into_version(), Ok(Some(version("5:0:s"))));
    assert_eq!(replied(Reply::NotApplied).into_version(), Ok(None));
    assert_eq!(bare(Reply::Done).into_version(), Err(RequestError::NoVersion));
    assert_eq!(bare(Reply::Removed).into_removal(), Ok(Removal::Removed));
    assert_eq!(bare(Reply::NothingRemoved).into_removal(), Ok(Removal::Absent));
    assert_eq!(bare(Reply::NotApplied).into_removal(), Ok(Removal::Different));
    // Answers to another kind of command.
    assert_eq!(bare(Reply::Removed).into_value(), Err(RequestError::OtherCommand));
    assert_eq!(bare(Reply::Removed).into_version(), Err(RequestError::OtherCommand));
    assert_eq!(bare(Reply::Done).into_removal(), Err(RequestError::OtherCommand));
}

#[test]
fn what_is_no_answer_is_an_error_that_says_what_may_have_happened() {
    for (outcome, error, may_be_applied) in failures() {
        assert_eq!(outcome.may_be_applied(), may_be_applied, "{outcome:?}");
        assert_eq!(error.may_be_applied(), may_be_applied, "{error:?}");
        assert_eq!(outcome.clone().into_value(), Err(error.clone()));
        assert_eq!(outcome.clone().into_version(), Err(error.clone()));
        assert_eq!(outcome.into_removal(), Err(error));
    }
    assert!(RequestError::NoVersion.may_be_applied());
    assert!(RequestError::OtherCommand.may_be_applied());
}

#[test]
fn a_value_is_not_printed() {
    let found = VersionedValue { value: Bytes::from_static(b"secret"), version: None };
    assert_eq!(format!("{found:?}"), "VersionedValue { value: <6 bytes>, version: None }");
}

#[test]
fn requests_are_made_of_whatever_bytes_there_are() {
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
    assert_eq!(Request::get("k").command(), Some(&Command::Get { key: key() }));
    assert_eq!(Request::del("k").command(), Some(&Command::Del { key: key() }));
    assert_eq!(
        Request::vdel("k", "v").command(),
        Some(&Command::VDel { key: key(), value: value() })
    );
    let set = |condition, expiry| Command::Set { key: key(), value: value(), condition, expiry };
    assert_eq!(Request::set("k", "v").command(), Some(&set(Condition::Always, None)));
    let request = Request::set("k", "v").condition(Condition::IfAbsent);
    let request = request.expires_after(Duration::from_micros(1_500));
    let two = Expiry::after(Duration::from_millis(2));
    assert_eq!(request.command(), Some(&set(Condition::IfAbsent, two)));
    let get = Request::get("k").condition(Condition::IfAbsent).expires_after(Duration::ZERO);
    assert_eq!(
        get.command(),
        Some(&Command::Get { key: key() }),
        "what a GET cannot have it has not"
    );
}

#[test]
fn a_value_that_expires_after_no_time_is_not_sent() {
    let mut rig = Rig::ready();
    let set = |after| Request::set("k", "v").expires_after(after);
    let now = rig.now();
    assert_eq!(rig.client.submit(now, set(Duration::ZERO)), Err(SubmitError::ZeroExpiry));
    assert_eq!(rig.client.poll_transmit(), None);
    let again = set(Duration::ZERO).expires_after(Duration::from_nanos(1));
    assert!(rig.client.submit(now, again).is_ok());
    assert!(rig.client.submit(now, Request::get("k").expires_after(Duration::ZERO)).is_ok());
}
