//! Laws of any history: what is held is given back, no more is held than may be, and messages reach whom they are for. The
//! naive broker of the fuzz target knows them all.

use proptest::prelude::*;
use statestore_tests::fuzz::{BrokerOp, mqtt_broker};
use statestore_tests::machine_ops::script;

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_broker_does_what_a_naive_one_does(data in script(2, |_: BrokerOp| true, 200)) {
        mqtt_broker(&data);
    }
}
