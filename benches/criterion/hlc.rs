//! Clock values: text in, text out, order, and the receive rule.

use criterion::{Criterion, criterion_group, criterion_main};
use statestore_benches::paths;

mod measure;

use measure::measure;

fn hlc(criterion: &mut Criterion) {
    measure(criterion, paths::hlc());
}

criterion_group!(benches, hlc);
criterion_main!(benches);
