//! Requests to a store, from the payload to the response, for keys in turn.

use std::hint::black_box;

use bytes::Bytes;
use statestore_proto::message::{Command, Condition, Expiry};

use crate::stage::{Operation, Stage, key};

const KEYS: usize = 100;

/// Value that a lock writes to its key.
const HOLDER: &[u8] = b"thermostat-7/0123456789abcdef/0";

pub(super) fn get(_: usize) -> Box<dyn FnMut()> {
    repeated(0, &[(Operation::Get, b"$64\r\n")])
}

pub(super) fn set(_: usize) -> Box<dyn FnMut()> {
    repeated(0, &[(Operation::Set, b"+OK\r\n")])
}

pub(super) fn set_with_10_watchers(_: usize) -> Box<dyn FnMut()> {
    repeated(10, &[(Operation::Set, b"+OK\r\n")])
}

fn repeated(watchers: usize, asks: &[(Operation, &[u8])]) -> Box<dyn FnMut()> {
    let mut stage = Stage::new(KEYS, watchers);
    let [(ask, expected)] = *asks else { panic!("one kind of request") };
    let requests = Stage::requests(ask, KEYS);
    for request in &requests {
        assert!(stage.run(request).is_some_and(|response| response.starts_with(expected)));
    }
    let mut turn = 0;
    Box::new(move || {
        turn = (turn + 1) % requests.len();
        black_box(stage.run(black_box(&requests[turn])));
    })
}

/// The requests of a lock: it is free, is acquired, and is released again.
pub(super) fn acquire_and_release(_: usize) -> Box<dyn FnMut()> {
    let mut stage = Stage::new(KEYS, 0);
    let key = || key(KEYS);
    let condition = Condition::IfAbsentOrEqual;
    let (value, expiry) = (HOLDER.to_vec(), Expiry::from_millis(10_000));
    let acquire = Command::Set { key: key(), value, condition, expiry }.encode();
    let release = Command::VDel { key: key(), value: HOLDER.to_vec() }.encode();
    let (acquire, release) = (Bytes::from(acquire), Bytes::from(release));
    let mut pair = move || (stage.run(black_box(&acquire)), stage.run(black_box(&release)));
    assert_eq!(pair(), (Some(Bytes::from("+OK\r\n")), Some(Bytes::from(":1\r\n"))));
    Box::new(move || _ = black_box(pair()))
}
