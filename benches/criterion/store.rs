//! Requests through the store: a raw PUBLISH in, the encoded reply out.

use criterion::{Criterion, criterion_group, criterion_main};
use statestore_benches::paths;

mod measure;

use measure::measure;

fn store(criterion: &mut Criterion) {
    measure(criterion, paths::store());
}

criterion_group!(benches, store);
criterion_main!(benches);
