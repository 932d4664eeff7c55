//! Decode and encode of a request's MQTT packet, and the same with rumqttc's codec.

use std::hint::black_box;

use bytes::BytesMut;
use criterion::{Criterion, criterion_group, criterion_main};
use statestore_benches::packets::{
    RUMQTTC, bytes, decode_ours, decode_theirs, encode_ours, encode_theirs, ours, theirs,
};

fn packets(criterion: &mut Criterion) {
    let bytes = bytes();
    criterion.bench_function("packet/decode/ours", |bencher| {
        bencher.iter(|| decode_ours(black_box(&bytes)));
    });
    let mut buffer = BytesMut::new();
    criterion.bench_function(&format!("packet/decode/{RUMQTTC}"), |bencher| {
        bencher.iter(|| {
            buffer.clear();
            buffer.extend_from_slice(black_box(&bytes));
            decode_theirs(&mut buffer)
        });
    });
    let packet = ours();
    criterion.bench_function("packet/encode/ours", |bencher| {
        bencher.iter(|| encode_ours(black_box(&packet), &mut buffer));
    });
    let packet = theirs();
    criterion.bench_function(&format!("packet/encode/{RUMQTTC}"), |bencher| {
        bencher.iter(|| encode_theirs(black_box(&packet), &mut buffer));
    });
}

criterion_group!(benches, packets);
criterion_main!(benches);
