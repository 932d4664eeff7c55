//! The golden vectors. A failure names the file and line of the case.

mod clocks;
mod globs;
mod messages;
mod refused;
mod scans;
mod topics;

use statestore_proto::message::{PeerErrorKind, RequestKind};
use statestore_proto::resp::RespErrorKind;
use statestore_testkit::vectors::Vectors;

/// Reads a file of vectors, which must be well-formed.
pub(crate) fn vectors(file: &str) -> Vectors {
    Vectors::read(file).unwrap_or_else(|error| panic!("{error}"))
}

/// The kinds in a list of verbs; `any` means all.
fn kinds(list: &str) -> Result<Vec<RequestKind>, String> {
    if list == "any" {
        return Ok(RequestKind::ALL.to_vec());
    }
    list.split(',')
        .map(|verb| {
            let kind = RequestKind::ALL.iter().copied().find(|kind| verb_of(*kind) == verb);
            kind.ok_or_else(|| format!("unknown verb {verb}"))
        })
        .collect()
}

fn verb_of(kind: RequestKind) -> &'static str {
    match kind {
        RequestKind::Get => "GET",
        RequestKind::Set => "SET",
        RequestKind::Del => "DEL",
        RequestKind::VDel => "VDEL",
        RequestKind::Watch => "KEYNOTIFY",
        RequestKind::Unwatch => "KEYNOTIFY STOP",
        RequestKind::Scan => "SCAN",
        _ => "a kind that the vectors do not know",
    }
}

/// The word for an error in the files.
fn problem(kind: PeerErrorKind) -> &'static str {
    match kind {
        PeerErrorKind::Resp(RespErrorKind::UnexpectedEnd) => "end",
        PeerErrorKind::Resp(RespErrorKind::UnexpectedByte) => "byte",
        PeerErrorKind::Resp(RespErrorKind::Overflow) => "overflow",
        PeerErrorKind::Resp(RespErrorKind::Overrun) => "overrun",
        PeerErrorKind::Resp(RespErrorKind::Trailing) => "trailing",
        PeerErrorKind::UnexpectedReply | PeerErrorKind::UnexpectedNotification => "unexpected",
        _ => "another problem",
    }
}
