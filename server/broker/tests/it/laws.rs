//! Comparison with the reference broker of the fuzz target, which checks three laws after every
//! history: memory is released, memory stays within its limits, and messages reach their
//! subscribers.

use proptest::prelude::*;
use statestore_fuzz_bodies::machines::{BrokerOp, mqtt_broker};
use statestore_models::machines::script;

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn broker_agrees_with_the_reference_broker(data in script(2, |_: BrokerOp| true, 200)) {
        mqtt_broker(&data);
    }
}
