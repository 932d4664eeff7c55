//! MQTT: packets, the session of a client, and the broker.

use criterion::{Criterion, criterion_group, criterion_main};
use statestore_benches::paths;

mod measure;

use measure::measure;

fn mqtt(criterion: &mut Criterion) {
    measure(criterion, paths::packet());
    measure(criterion, paths::session());
    measure(criterion, paths::broker());
}

criterion_group!(benches, mqtt);
criterion_main!(benches);
