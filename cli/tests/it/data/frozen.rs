//! Directories and dumps of format 1, which every later version reads. The files in
//! `tests/vectors/format-1` are never written again.

use std::fs;
use std::path::Path;
use std::time::Duration;

use statestore_proto::message::Dialect;
use statestore_proto::store::{Record, RecordedResponse};
use statestore_proto::transport::Correlation;
use statestore_sqlite::Reader;

use super::{STARTED, Scratch, data, dump, hlc, records};
use crate::process::run;

const FORMAT_1: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/vectors/format-1");

/// All kinds of records, and a response with each combination of what it can lack.
fn records_of_all_kinds() -> Vec<Record> {
    let response = |owner: Option<&str>, timestamp, given_at, order| {
        Record::Response(RecordedResponse {
            client_id: "lamp".into(),
            verified: owner.is_some(),
            owner: owner.map(Into::into),
            response_topic: "clients/lamp/r".into(),
            correlation: Correlation::new(b"0123456789abcdef"),
            content: order << 40,
            payload: b"+OK\r\n".as_slice().into(),
            timestamp,
            retention: Duration::from_secs(10),
            given_at: Duration::from_millis(given_at),
            order,
        })
    };
    let others = [
        Record::Registered {
            client_id: "lamp".into(),
            key: Box::from(*b"gone"),
            verified: false,
            dialect: Dialect::Spec,
            wants_incarnation: false,
            order: 8,
        },
        Record::Unregistered { client_id: "lamp".into(), key: Box::from(*b"gone") },
        response(None, None, 0, 9),
        response(Some("tenant"), Some(hlc(STARTED, 9)), 300, 10),
        super::put(b"late", b"v", 90),
        response(None, Some(hlc(STARTED, 90)), 5, 11),
    ];
    [records(), others.into()].concat()
}

#[test]
fn directory_and_dump_of_format_1_are_read() {
    let scratch = Scratch::new();
    let (directory, restored) = (scratch.path("directory"), scratch.path("restored"));
    fs::create_dir(&directory).unwrap();
    let frozen = Path::new(FORMAT_1);
    for name in ["records.db", "acknowledged"] {
        fs::copy(frozen.join(name), directory.join(name)).unwrap();
    }
    let read: Vec<Record> =
        Reader::open(&directory).unwrap().flat_map(|portion| portion.unwrap()).collect();
    assert_eq!(read, records_of_all_kinds());

    let dumped = fs::read(frozen.join("dump.jsonl")).unwrap();
    assert_eq!(dump(&directory), dumped);
    run(data("restore", &restored).arg(frozen.join("dump.jsonl"))).is(0, "restored 7 keys\n");
    assert_eq!(dump(&restored), dumped);
}
