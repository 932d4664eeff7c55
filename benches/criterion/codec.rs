//! Decode and encode of every request, reply and notification.

use criterion::{Criterion, criterion_group, criterion_main};
use statestore_benches::paths;

mod measure;

use measure::measure;

fn codec(criterion: &mut Criterion) {
    measure(criterion, paths::codec());
}

criterion_group!(benches, codec);
criterion_main!(benches);
