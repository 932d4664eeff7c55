//! Messages, from bytes and to bytes.

use std::hint::black_box;

use statestore_proto::message::{Command, Reply, RequestKind};

use super::Path;
use crate::cases::{Case, Message, notifications, replies, requests};

/// Messages whose instructions are counted.
const COUNTED: [&str; 3] = ["set/64B", "get-hit/64B", "notify-set/64B"];

/// Decode and encode of every request, reply and notification. `decode` is what the store and the
/// client call. `decode-command` and `decode-reply` know neither SCAN nor its pages.
#[must_use]
pub fn codec() -> Vec<Path> {
    let mut paths = Vec::new();
    for case in requests() {
        add(&case, &mut paths);
        if is_counted(&case) {
            paths.push(path("decode-command", &case, |_, payload| {
                _ = black_box(Command::decode(payload));
            }));
        }
    }
    for case in replies() {
        add(&case, &mut paths);
        if is_counted(&case) {
            paths.push(path("decode-reply", &case, |_, payload| {
                _ = black_box(Reply::decode(payload, RequestKind::Get));
            }));
        }
    }
    notifications().iter().for_each(|case| add(case, &mut paths));
    paths
}

fn is_counted<M>(case: &Case<M>) -> bool {
    COUNTED.contains(&case.name.as_str())
}

fn add<M: Message>(case: &Case<M>, paths: &mut Vec<Path>) {
    paths.push(path("decode", case, |message, payload| {
        _ = black_box(message.decode(payload));
    }));
    paths.push(path("encode", case, |message, _| _ = black_box(black_box(*message).encode())));
    paths.push(path("encode-into", case, |message, out| {
        _ = black_box(black_box(*message).encode_into(out));
    }));
}

/// `call` gets the message, and a buffer that contains its payload.
fn path<M: Message>(
    operation: &str,
    case: &Case<M>,
    call: impl Fn(&M, &mut Vec<u8>) + Copy + 'static,
) -> Path {
    let name = format!("codec/{operation}/{}", case.name);
    let (len, is_counted, case) = (case.payload.len(), is_counted(case), case.clone());
    let prepare = move || {
        case.verify();
        let (message, mut payload) = (case.message, case.payload.clone());
        move || call(&message, black_box(&mut payload))
    };
    let path = Path::new(name, prepare).bytes(len);
    if is_counted { path.counted() } else { path }
}
