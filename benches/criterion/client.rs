//! Requests through the client: from submission to completion, with one and with many in flight.

use criterion::{Criterion, criterion_group, criterion_main};
use statestore_benches::paths;

mod measure;

use measure::measure;

fn client(criterion: &mut Criterion) {
    measure(criterion, paths::client());
}

criterion_group!(benches, client);
criterion_main!(benches);
