//! Decode and encode of every command, reply and notification.

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use statestore_benches::cases::{Case, Message, commands, notifications, replies};

fn codec(criterion: &mut Criterion) {
    measure(criterion, &commands());
    measure(criterion, &replies());
    measure(criterion, &notifications());
}

fn measure<M: Message>(criterion: &mut Criterion, cases: &[Case<M>]) {
    for case in cases {
        case.verify();
        let Case { name, message, payload, .. } = case;
        criterion.bench_function(&format!("decode/{name}"), |bencher| {
            bencher.iter(|| black_box(message).decode(black_box(payload)));
        });
        criterion.bench_function(&format!("encode/{name}"), |bencher| {
            bencher.iter(|| black_box(message).encode());
        });
        let mut out = vec![0; payload.len()];
        criterion.bench_function(&format!("encode-into/{name}"), |bencher| {
            bencher.iter(|| black_box(message).encode_into(black_box(&mut out)));
        });
    }
}

criterion_group!(benches, codec);
criterion_main!(benches);
