//! Requests to a store, from the payload to the response, for keys in turn.

use std::cell::{LazyCell, RefCell};
use std::hint::black_box;
use std::rc::Rc;

use bytes::Bytes;
use statestore_proto::message::{Command, Condition, Expiry};

use super::Path;
use crate::stage::{Operation, Stage, key};

/// Value that a lock writes to its key.
const HOLDER: &[u8] = b"thermostat-7/0123456789abcdef/0";

/// An operation, and the start of its response.
type Step = (Operation, &'static [u8]);

/// Names of the measured operations, and their steps.
const OPERATIONS: [(&str, &[Step]); 4] = [
    ("get", &[(Operation::Get, b"$64\r\n")]),
    ("set", &[(Operation::Set, b"+OK\r\n")]),
    ("set-px", &[(Operation::SetPx, b"+OK\r\n")]),
    ("del+set", &[(Operation::Del, b":1\r\n"), (Operation::Set, b"+OK\r\n")]),
];

/// Numbers of keys and watchers, and the operations that are counted.
const STAGES: [(usize, usize, &[&str]); 6] = [
    (100, 0, &["get", "set"]),
    (10_000, 0, &[]),
    (1_000_000, 0, &[]),
    (100, 1, &[]),
    (100, 10, &["set"]),
    (100, 100, &[]),
];

/// Requests to stores with different numbers of keys and watchers, and the requests of a lock.
#[must_use]
pub fn store() -> Vec<Path> {
    let mut paths = Vec::new();
    for (keys, watchers, counted) in STAGES {
        let input = match watchers {
            0 => format!("{keys}-keys"),
            1 => format!("{keys}-keys/1-watcher"),
            _ => format!("{keys}-keys/{watchers}-watchers"),
        };
        let fill = move || RefCell::new(Stage::new(keys, watchers));
        let shared = SharedStage::new(LazyCell::new(Box::new(fill)));
        for (verb, operations) in OPERATIONS {
            let shared = SharedStage::clone(&shared);
            let prepare = move || repeated(SharedStage::clone(&shared), keys, operations);
            let path = Path::new(format!("store/{verb}/{input}"), prepare);
            let path = path.messages(operations.len());
            paths.push(if counted.contains(&verb) { path.counted() } else { path });
        }
    }
    paths.push(
        Path::new("store/acquire+release/100-keys", acquire_and_release).messages(2).counted(),
    );
    paths
}

/// A store that is filled once for all of its paths.
type SharedStage = Rc<LazyCell<RefCell<Stage>, Box<dyn FnOnce() -> RefCell<Stage>>>>;

/// Calls execute these operations on one key, and then on the next one.
fn repeated(shared: SharedStage, keys: usize, operations: &[Step]) -> impl FnMut() + use<> {
    LazyCell::force(&shared);
    let requests: Vec<Vec<Bytes>> =
        operations.iter().map(|(operation, _)| Stage::requests(*operation, keys)).collect();
    let len = requests[0].len();
    for turn in 0..len {
        for (requests, (_, expected)) in requests.iter().zip(operations) {
            let response = shared.borrow_mut().run(&requests[turn]);
            assert!(response.is_some_and(|response| response.starts_with(expected)));
        }
    }
    let mut turn = 0;
    move || {
        turn = (turn + 1) % len;
        let mut stage = shared.borrow_mut();
        for requests in &requests {
            black_box(stage.run(black_box(&requests[turn])));
        }
    }
}

/// The requests of a lock: it is free, is acquired, and is released again.
fn acquire_and_release() -> impl FnMut() {
    let mut stage = Stage::new(100, 0);
    let key = || key(100);
    let condition = Condition::IfAbsentOrEqual;
    let (value, expiry) = (HOLDER.to_vec(), Expiry::from_millis(10_000));
    let acquire = Command::Set { key: key(), value, condition, expiry }.encode();
    let release = Command::VDel { key: key(), value: HOLDER.to_vec() }.encode();
    let (acquire, release) = (Bytes::from(acquire), Bytes::from(release));
    let mut pair = move || (stage.run(black_box(&acquire)), stage.run(black_box(&release)));
    assert_eq!(pair(), (Some(Bytes::from("+OK\r\n")), Some(Bytes::from(":1\r\n"))));
    move || _ = black_box(pair())
}
