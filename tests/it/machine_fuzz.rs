//! The fuzz bodies of the machines: on generated inputs, their seeds and the committed corpus.

use std::fs;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use statestore_fuzz_bodies::machines::{
    BrokerOp, ClientOp, Seed, SessionOp, StoreOp, WorldOp, captures, client_events, client_seeds,
    mqtt_broker, mqtt_session, store_ops, store_seeds, world, world_seeds,
};
use statestore_models::machines::script;

fn client_script() -> impl Strategy<Value = Vec<u8>> {
    script(1, |_: ClientOp| true, 80)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn store_output_equals_that_of_the_oracle(data in script(1, |_: StoreOp| true, 60)) {
        store_ops(&data);
    }

    #[test]
    fn replayed_capture_equals_the_original_run(data in script(1, |_: StoreOp| true, 60)) {
        captures(&data);
    }

    #[test]
    fn client_with_a_store_upholds_its_invariants(data in client_script()) {
        client_events(&[&[data[0] | 1], &data[1..]].concat());
    }

    #[test]
    fn client_with_arbitrary_input_upholds_its_invariants(data in client_script()) {
        client_events(&[&[data[0] & !1], &data[1..]].concat());
    }

    #[test]
    fn world_with_faults_upholds_its_invariants(data in script(4, |_: WorldOp| true, 40)) {
        world(&data);
    }

    #[test]
    fn broker_output_equals_that_of_the_naive_broker(data in script(2, |_: BrokerOp| true, 200)) {
        mqtt_broker(&data);
    }

    #[test]
    fn session_upholds_its_invariants_with_a_naive_server(data in script(2, |_: SessionOp| true, 200)) {
        mqtt_session(&data);
    }

    #[test]
    fn arbitrary_bytes_are_accepted_by_every_fuzz_body(data in prop::collection::vec(any::<u8>(), 0..400)) {
        store_ops(&data);
        client_events(&data);
        world(&data);
        mqtt_broker(&data);
        mqtt_session(&data);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200_000, failure_persistence: None, ..ProptestConfig::default() })]

    /// For changes of the broker.
    #[test]
    #[ignore = "it takes minutes"]
    fn broker_output_equals_that_of_the_naive_broker_in_a_long_run(data in script(2, |_: BrokerOp| true, 300)) {
        mqtt_broker(&data);
    }
}

fn corpus(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target)
}

/// Checks that the corpus, which the test `corpus` replays, contains every seed.
fn in_corpus(target: &str, seeds: Vec<Seed>) {
    assert!(seeds.len() >= 20, "{target} has only {} seeds", seeds.len());
    for (name, input) in seeds {
        let file = fs::read(corpus(target).join(name)).unwrap_or_default();
        assert_eq!(file, input, "{target}/{name} is not in the corpus");
    }
}

#[test]
fn corpora_contain_every_seed() {
    in_corpus("store_ops", store_seeds());
    in_corpus("client_events", client_seeds());
    in_corpus("world", world_seeds());
}
