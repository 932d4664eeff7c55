//! Messages: commands, replies, notifications.

use statestore_proto::message::{
    Command, Dialect, Notification, PeerErrorKind, Reply, RequestKind, WordCase,
};
use statestore_proto::resp::{RespError, RespErrorKind, decode_array, decode_frame};

use super::{check_neighbours, check_writer, naive};

/// Number of elements that the array decoder retains here: fewer than many inputs contain.
const KEPT: usize = 4;

/// Oracle: a naive parser accepts the same requests with the same meaning, and refuses the others
/// with the same error, in both modes of case. Accepted requests can be encoded and decoded again,
/// also in strict mode.
///
/// Input: the payload of a request.
pub fn request(data: &[u8]) {
    check_array(data);
    let tolerant = Command::decode(data);
    let strict = Command::decode_with(data, WordCase::Upper);
    for (read, upper_only) in [(tolerant, false), (strict, true)] {
        let answer = read.map_err(|error| {
            assert!(error.at <= data.len(), "{error} is outside of the payload");
            error.kind.refusal()
        });
        assert_eq!(answer, naive::request(data, upper_only), "upper case only: {upper_only}");
    }
    if strict.is_ok() {
        assert_eq!(strict, tolerant, "the strict reader accepts a subset");
    }

    let Ok(command) = tolerant else { return };
    let written = command.encode();
    check_writer(command.encoded_len(), &written, |out| command.encode_into(out));
    check_canonical(&written);
    assert!(written.len() <= data.len(), "the canonical form is the shortest");
    assert_eq!(Command::decode(&written), Ok(command));
    assert_eq!(Command::decode_with(&written, WordCase::Upper), Ok(command));
    check_neighbours(&written, |bytes| Command::decode(bytes).is_ok());
    let owned = command.map(<[u8]>::to_vec);
    assert_eq!(
        (owned.borrowed(), owned.kind(), owned.encode()),
        (command, command.kind(), written)
    );
}

/// Oracle: a naive parser accepts the same replies with the same meaning for every kind of request.
/// Accepted replies can be encoded in either dialect and decoded again.
///
/// Input: the payload of a reply.
pub fn reply(data: &[u8]) {
    let read = decode_frame(data);
    assert_eq!(read.ok(), naive::frame(data));
    match read {
        Err(error) => check_resp_error(error, data),
        Ok(frame) => {
            let mut written = vec![0; frame.encoded_len()];
            assert_eq!(frame.encode_into(&mut written), Ok(written.len()));
            check_writer(frame.encoded_len(), &written, |out| frame.encode_into(out));
            assert_eq!(decode_frame(&written), Ok(frame));
        }
    }
    for kind in RequestKind::ALL.iter().copied() {
        let read = Reply::decode(data, kind);
        assert_eq!(read.ok(), naive::reply(data, kind), "as a reply to {kind:?}");
        match read {
            Ok(reply) => check_reply(&reply, kind),
            Err(error) => assert!(error.at <= data.len(), "{error} is outside of the payload"),
        }
    }
}

fn check_reply(reply: &Reply<&[u8]>, kind: RequestKind) {
    for dialect in [Dialect::Deployed, Dialect::Spec] {
        let written = reply.encode(dialect);
        check_writer(reply.encoded_len(dialect), &written, |out| reply.encode_into(dialect, out));
        assert_eq!(Reply::decode(&written, kind), Ok(*reply), "{dialect:?}");
        // An error is also accepted without its end, so some of its prefixes are errors too.
        if !matches!(reply, Reply::Error(_)) {
            check_neighbours(&written, |bytes| Reply::decode(bytes, kind).is_ok());
        }
    }
}

/// Oracle: a naive parser accepts the same notifications with the same meaning. Accepted
/// notifications can be encoded in either dialect and decoded again.
///
/// Input: the payload of a notification.
pub fn notification(data: &[u8]) {
    check_array(data);
    let read = Notification::decode(data);
    assert_eq!(read.ok(), naive::notification(data));
    let notification = match read {
        Ok(notification) => notification,
        Err(error) => {
            let is_array = naive::array(data).is_some();
            assert_eq!(error.kind == PeerErrorKind::UnexpectedNotification, is_array);
            assert!(error.at <= data.len(), "{error} is outside of the payload");
            return;
        }
    };
    for dialect in [Dialect::Deployed, Dialect::Spec] {
        let written = notification.encode(dialect);
        let encode_into = |out: &mut [u8]| notification.encode_into(dialect, out);
        check_writer(notification.encoded_len(dialect), &written, encode_into);
        check_canonical(&written);
        assert_eq!(Notification::decode(&written), Ok(notification), "{dialect:?}");
        check_neighbours(&written, |bytes| Notification::decode(bytes).is_ok());
    }
}

/// Checks that the array decoder and the naive parser agree, also about elements that are only
/// counted.
fn check_array(data: &[u8]) {
    let expected = naive::array(data);
    match decode_array::<KEPT>(data) {
        Ok(blobs) => {
            let elements = expected.expect("the naive reading refuses this array");
            assert_eq!(blobs.total(), elements.len());
            assert_eq!(blobs.as_slice(), &elements[..elements.len().min(KEPT)]);
        }
        Err(error) => {
            assert_eq!(expected, None, "the naive reading accepts this array");
            check_resp_error(error, data);
        }
    }
}

/// Checks the offset of an error: inside of the payload, or at its end if bytes are missing.
fn check_resp_error(error: RespError, data: &[u8]) {
    assert!(error.at <= data.len(), "{error} is outside of the payload");
    assert_eq!(error.kind == RespErrorKind::UnexpectedEnd, error.at == data.len(), "{error}");
}

/// Checks that the encoding is the canonical one.
fn check_canonical(written: &[u8]) {
    let elements = naive::array(written).expect("what is written is an array");
    assert_eq!(naive::write_array(&elements), written);
}
