//! The golden vectors against the core. A failure names the file and the line of the case.

mod clocks;
mod globs;
mod messages;
mod refused;
mod scans;
mod topics;

use statestore_proto::message::{CommandKind, PeerErrorKind};
use statestore_proto::resp::RespErrorKind;
use statestore_tests::vectors::Vectors;

/// Reads a file that must be there and well formed.
pub(crate) fn vectors(file: &str) -> Vectors {
    Vectors::read(file).unwrap_or_else(|error| panic!("{error}"))
}

/// The kinds of a list of verbs; `any` is all of them.
fn kinds(list: &str) -> Result<Vec<CommandKind>, String> {
    if list == "any" {
        return Ok(CommandKind::ALL.to_vec());
    }
    list.split(',')
        .map(|verb| {
            let kind = CommandKind::ALL.iter().copied().find(|kind| verb_of(*kind) == verb);
            kind.ok_or_else(|| format!("unknown verb {verb}"))
        })
        .collect()
}

fn verb_of(kind: CommandKind) -> &'static str {
    match kind {
        CommandKind::Get => "GET",
        CommandKind::Set => "SET",
        CommandKind::Del => "DEL",
        CommandKind::VDel => "VDEL",
        CommandKind::Watch => "KEYNOTIFY",
        CommandKind::Unwatch => "KEYNOTIFY STOP",
        CommandKind::Scan => "SCAN",
    }
}

/// The word for a problem in the files.
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
