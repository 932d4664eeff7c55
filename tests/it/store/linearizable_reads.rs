//! With `linearizable_reads`, a read waits for a batch handed out after its request.

use statestore_models::machines::request::Sent;
use statestore_proto::message::Scan;
use statestore_proto::store::{Durability, StoreConfig};

use super::durability::leaves;
use super::{Rig, get, set, watch};

fn strict(durability: Durability) -> Rig {
    Rig::with(StoreConfig::new(7).durability(durability).linearizable_reads(true))
}

/// Persists the next batch and returns its number of records and the packets that it releases.
fn persist(rig: &mut Rig) -> (usize, usize) {
    let batch = rig.store.poll_records().unwrap();
    rig.store.handle_persisted(batch.id);
    (batch.records.len(), Sent::drain(&mut rig.store).len())
}

#[test]
fn linearizable_read_waits_for_a_batch_even_without_records() {
    let mut rig = strict(Durability::All);
    assert_eq!(rig.store.poll_records(), None);
    assert_eq!(leaves(&mut rig, &get("k"), false), 0);
    assert_eq!(leaves(&mut rig, &get("other"), false), 0);
    assert_eq!(persist(&mut rig), (0, 4), "one batch for all waiting reads");
    assert_eq!(rig.store.poll_records(), None);
}

#[test]
fn batch_handed_out_before_the_read_does_not_release_it() {
    let mut rig = strict(Durability::All);
    leaves(&mut rig, &set("k", "v"), false);
    let before = rig.store.poll_records().unwrap();
    assert_eq!(leaves(&mut rig, &get("other"), false), 0);
    rig.store.handle_persisted(before.id);
    assert_eq!(Sent::drain(&mut rig.store).len(), 2, "only the SET");
    assert_eq!(persist(&mut rig), (0, 2));
}

#[test]
fn batch_with_records_releases_reads_too() {
    let mut rig = strict(Durability::All);
    leaves(&mut rig, &get("k"), false);
    leaves(&mut rig, &set("k", "v"), false);
    leaves(&mut rig, &get("other"), false);
    assert_eq!(persist(&mut rig), (2, 6));
    assert_eq!(rig.store.poll_records(), None);
}

#[test]
fn read_is_released_by_a_partial_batch() {
    let mut rig = strict(Durability::All);
    leaves(&mut rig, &set("a", "v"), false);
    leaves(&mut rig, &set("b", "v"), false);
    leaves(&mut rig, &get("other"), false);
    let batch = rig.store.poll_records_within(2).unwrap();
    assert_eq!(batch.records.len(), 2);
    rig.store.handle_persisted(batch.id);
    let sent = Sent::drain(&mut rig.store);
    assert_eq!(sent.len(), 3, "the first SET, and the reply of the GET");
    assert_eq!(persist(&mut rig), (2, 3));
}

#[test]
fn scans_registrations_and_duplicates_wait_like_reads() {
    let mut rig = strict(Durability::Requested);
    let write = rig.request("c", &set("k", "v"));
    assert_eq!(rig.send(&write), [], "even if its value is not durable");
    let (_, sent) = persist(&mut rig);
    assert_eq!(sent, 2);
    assert_eq!(rig.send(&write), []);
    let mut listing = rig.request("c", &get("k"));
    listing.payload = Scan { pattern: b"*".as_slice(), token: None }.encode().into();
    assert_eq!(rig.send(&listing), []);
    assert_eq!(leaves(&mut rig, &watch("k"), false), 0);
    assert_eq!(persist(&mut rig).1, 6);
}

#[test]
fn error_that_reveals_no_state_is_sent_at_once_and_acknowledged_in_order() {
    let mut rig = strict(Durability::All);
    let mut request = rig.request("c", &get("k"));
    request.correlation = None;
    assert_eq!(rig.send(&request).len(), 1);
    assert_eq!(persist(&mut rig), (0, 1));
}

#[test]
fn linearizable_reads_without_durability_do_not_wait() {
    let mut rig = Rig::with(StoreConfig::new(7).linearizable_reads(true));
    assert_eq!(leaves(&mut rig, &get("k"), false), 2);
    assert_eq!(rig.store.poll_records(), None);
}
