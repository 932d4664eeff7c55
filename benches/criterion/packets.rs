//! Decode and encode of the MQTT packet of a request.

use std::hint::black_box;

use bytes::BytesMut;
use criterion::{Criterion, criterion_group, criterion_main};
use statestore_benches::packets::{PROPERTIES, decode, encode, request, request_bytes};

fn packets(criterion: &mut Criterion) {
    let bytes = request_bytes();
    assert_eq!(decode(&bytes), PROPERTIES.len(), "all properties are decoded");
    criterion.bench_function("packet/decode/ours", |bencher| {
        bencher.iter(|| decode(black_box(&bytes)));
    });
    let packet = request();
    let mut buffer = BytesMut::new();
    criterion.bench_function("packet/encode/ours", |bencher| {
        bencher.iter(|| encode(black_box(&packet), &mut buffer));
    });
}

criterion_group!(benches, packets);
criterion_main!(benches);
