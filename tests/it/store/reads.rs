//! A read that must not be stale waits for a batch that was handed out after its request.

use statestore_proto::message::Scan;
use statestore_proto::store::{Durability, StoreConfig};
use statestore_tests::ask::Told;

use super::durability::leaves;
use super::{Rig, get, set, watch};

fn strict(durability: Durability) -> Rig {
    Rig::with(StoreConfig::new(7).durability(durability).linearizable_reads(true))
}

/// Takes the next batch, says how many records it has and how many packets leave once it is safe.
fn persist(rig: &mut Rig) -> (usize, usize) {
    let batch = rig.store.poll_records().unwrap();
    rig.store.handle_persisted(batch.id);
    (batch.records.len(), Told::drain(&mut rig.store).len())
}

#[test]
fn a_read_waits_for_a_batch_without_records() {
    let mut rig = strict(Durability::All);
    assert_eq!(rig.store.poll_records(), None);
    assert_eq!(leaves(&mut rig, &get("k"), false), 0);
    assert_eq!(leaves(&mut rig, &get("other"), false), 0);
    assert_eq!(persist(&mut rig), (0, 4), "one for all that wait");
    assert_eq!(rig.store.poll_records(), None);
}

#[test]
fn a_batch_that_was_handed_out_before_is_not_enough() {
    let mut rig = strict(Durability::All);
    leaves(&mut rig, &set("k", "v"), false);
    let before = rig.store.poll_records().unwrap();
    assert_eq!(leaves(&mut rig, &get("other"), false), 0);
    rig.store.handle_persisted(before.id);
    assert_eq!(Told::drain(&mut rig.store).len(), 2, "the SET alone");
    assert_eq!(persist(&mut rig), (0, 2));
}

#[test]
fn a_batch_with_records_serves_reads_too() {
    let mut rig = strict(Durability::All);
    leaves(&mut rig, &get("k"), false);
    leaves(&mut rig, &set("k", "v"), false);
    leaves(&mut rig, &get("other"), false);
    assert_eq!(persist(&mut rig), (2, 6));
    assert_eq!(rig.store.poll_records(), None);
}

#[test]
fn a_part_of_what_was_written_is_enough() {
    let mut rig = strict(Durability::All);
    leaves(&mut rig, &set("a", "v"), false);
    leaves(&mut rig, &set("b", "v"), false);
    leaves(&mut rig, &get("other"), false);
    let batch = rig.store.poll_records_within(2).unwrap();
    assert_eq!(batch.records.len(), 2);
    rig.store.handle_persisted(batch.id);
    let told = Told::drain(&mut rig.store);
    assert_eq!(told.len(), 3, "the first SET, and the GET without its acknowledgement");
    assert_eq!(persist(&mut rig), (2, 3));
}

#[test]
fn listings_refusals_and_repeated_answers_are_reads() {
    let mut rig = strict(Durability::Requested);
    let write = rig.ask("c", &set("k", "v"));
    assert_eq!(rig.hand(&write), [], "also where its value is not kept");
    let (_, told) = persist(&mut rig);
    assert_eq!(told, 2);
    assert_eq!(rig.hand(&write), []);
    let mut listing = rig.ask("c", &get("k"));
    listing.payload = Scan { pattern: b"*".as_slice(), token: None }.encode().into();
    assert_eq!(rig.hand(&listing), []);
    assert_eq!(leaves(&mut rig, &watch("k"), false), 0);
    assert_eq!(persist(&mut rig).1, 6);
}

#[test]
fn what_tells_of_nothing_stored_waits_for_nothing_but_its_acknowledgement_stays_in_order() {
    let mut rig = strict(Durability::All);
    let mut ask = rig.ask("c", &get("k"));
    ask.correlation = None;
    assert_eq!(rig.hand(&ask).len(), 1);
    assert_eq!(persist(&mut rig), (0, 1));
}

#[test]
fn nothing_waits_where_nothing_is_durable() {
    let mut rig = Rig::with(StoreConfig::new(7).linearizable_reads(true));
    assert_eq!(leaves(&mut rig, &get("k"), false), 2);
    assert_eq!(rig.store.poll_records(), None);
}
