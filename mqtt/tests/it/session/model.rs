//! The poll contract after random histories, checked by the reference server of the fuzz target:
//! any order of calls is accepted, idle is free, deadlines advance, early timeouts are harmless,
//! memory is bounded, each token ends once, and the division of the input makes no difference.

use proptest::prelude::*;
use statestore_fuzz_bodies::machines::{SessionOp, mqtt_session};
use statestore_models::machines::script;

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn session_fulfills_the_poll_contract(data in script(2, |_: SessionOp| true, 200)) {
        mqtt_session(&data);
    }

    #[test]
    fn session_fulfills_the_poll_contract_without_arbitrary_bytes(
        data in script(2, |op: SessionOp| op != SessionOp::Raw, 300)
    ) {
        mqtt_session(&data);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100_000, failure_persistence: None, ..ProptestConfig::default() })]

    /// Run after changes of the session.
    #[test]
    #[ignore = "it takes minutes"]
    fn session_fulfills_the_poll_contract_in_a_long_run(data in script(2, |_: SessionOp| true, 300)) {
        mqtt_session(&data);
    }
}
