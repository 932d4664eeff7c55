//! What proves `statestore-proto`, as a library: generators of its values, naive models as oracles, fuzz bodies, and
//! the reader of the golden vectors. The tests themselves are in the one binary `it`.

pub mod ask;
pub mod certificates;
pub mod conformance;
pub mod counting;
pub mod fuzz;
pub mod generators;
pub mod log;
pub mod machine_ops;
pub mod model;
pub mod mosquitto;
pub mod oracle;
pub mod sim;
pub mod vectors;
pub mod worlds;
