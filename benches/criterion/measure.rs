//! Measures paths with criterion.

use criterion::{Criterion, Throughput};
use statestore_benches::paths::{Amount, Path};

/// Measures the time of these paths, and prints what they process in a second.
pub(crate) fn measure(criterion: &mut Criterion, paths: Vec<Path>) {
    for path in paths.into_iter().filter(|path| path.is_timed) {
        // Criterion separates groups and names by a slash, as the names do.
        let (group, name) = path.name.split_once('/').unwrap_or(("", &path.name));
        let mut group = criterion.benchmark_group(group);
        match path.amount {
            Some(Amount::Bytes(bytes)) => _ = group.throughput(Throughput::Bytes(bytes as u64)),
            Some(Amount::Messages(count)) => {
                _ = group.throughput(Throughput::Elements(count as u64))
            }
            None => {}
        }
        // Prepared before its first sample, so a filter skips the filling of a large store.
        let mut call = None;
        group.bench_function(name, |bencher| {
            let call = call.get_or_insert_with(|| path.prepare());
            bencher.iter(call);
        });
        group.finish();
    }
}
