//! The fuzz bodies of the machines: on generated inputs, on their seeds, and on the committed corpus.

use std::fs;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use statestore_tests::fuzz::{BrokerOp, mqtt_broker, recordings};
use statestore_tests::machine_ops::{
    ClientOp, Seed, StoreOp, WorldOp, client_events, client_seeds, script, store_ops, store_seeds,
    world, world_seeds,
};

fn client_script() -> impl Strategy<Value = Vec<u8>> {
    script(1, |_: ClientOp| true, 80)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_store_says_what_its_oracle_says(data in script(1, |_: StoreOp| true, 60)) {
        store_ops(&data);
    }

    #[test]
    fn a_recording_is_played_as_it_was(data in script(1, |_: StoreOp| true, 60)) {
        recordings(&data);
    }

    #[test]
    fn a_client_with_a_store_keeps_its_promises(data in client_script()) {
        client_events(&[&[data[0] | 1], &data[1..]].concat());
    }

    #[test]
    fn a_client_that_is_told_anything_keeps_its_promises(data in client_script()) {
        client_events(&[&[data[0] & !1], &data[1..]].concat());
    }

    #[test]
    fn a_world_with_faults_keeps_its_promises(data in script(4, |_: WorldOp| true, 40)) {
        world(&data);
    }

    #[test]
    fn a_broker_does_what_a_naive_one_does(data in script(2, |_: BrokerOp| true, 200)) {
        mqtt_broker(&data);
    }

    #[test]
    fn any_bytes_will_do(data in prop::collection::vec(any::<u8>(), 0..400)) {
        store_ops(&data);
        client_events(&data);
        world(&data);
        mqtt_broker(&data);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200_000, failure_persistence: None, ..ProptestConfig::default() })]

    /// Minutes, for whoever changes the broker.
    #[test]
    #[ignore = "it takes minutes"]
    fn a_broker_does_so_for_long(data in script(2, |_: BrokerOp| true, 300)) {
        mqtt_broker(&data);
    }
}

fn corpus(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus").join(target)
}

/// Every seed is in the corpus, which the test `corpus` replays.
fn in_corpus(target: &str, seeds: Vec<Seed>) {
    assert!(seeds.len() >= 20, "{target} has only {} seeds", seeds.len());
    for (name, input) in seeds {
        let file = fs::read(corpus(target).join(name)).unwrap_or_default();
        assert_eq!(file, input, "{target}/{name} is not in the corpus");
    }
}

#[test]
fn the_corpora_have_every_seed() {
    in_corpus("store_ops", store_seeds());
    in_corpus("client_events", client_seeds());
    in_corpus("world", world_seeds());
}
