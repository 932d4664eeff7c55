//! Requests through the client: from submission to completion, with one and with many in flight.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use statestore_benches::stage::ClientStage;

fn client(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("client");
    for in_flight in [1_usize, 256] {
        let mut stage = ClientStage::new();
        assert_eq!(stage.run(in_flight), in_flight, "each request has a response");
        group.throughput(Throughput::Elements(in_flight as u64));
        group.bench_function(format!("submit-to-completion/{in_flight}"), |bencher| {
            bencher.iter(|| stage.run(in_flight));
        });
    }
    group.finish();
}

criterion_group!(benches, client);
criterion_main!(benches);
