//! Requests through the store: a raw PUBLISH in, the encoded reply out.

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use statestore_benches::stage::{Operation, Stage};

fn store(criterion: &mut Criterion) {
    for (name, keys, watchers) in [
        ("1e2", 100, 0),
        ("1e4", 10_000, 0),
        ("1e6", 1_000_000, 0),
        ("1e2/1watcher", 100, 1),
        ("1e2/100watchers", 100, 100),
    ] {
        // Filled before its first measurement, so a filter can skip a million keys.
        let mut stage = None;
        for (verb, ask, expected) in [
            ("get", Operation::Get, &b"$64\r\n"[..]),
            ("set", Operation::Set, b"+OK\r\n"),
            ("set-px", Operation::SetPx, b"+OK\r\n"),
        ] {
            criterion.bench_function(&format!("store/{verb}/{name}"), |bencher| {
                let stage = stage.get_or_insert_with(|| Stage::new(keys, watchers));
                let requests = Stage::requests(ask, keys);
                assert!(stage.run(&requests[0]).is_some_and(|reply| reply.starts_with(expected)));
                let mut turn = 0;
                bencher.iter(|| {
                    turn = (turn + 1) % requests.len();
                    stage.run(black_box(&requests[turn]))
                });
            });
        }
        criterion.bench_function(&format!("store/del+set/{name}"), |bencher| {
            let stage = stage.get_or_insert_with(|| Stage::new(keys, watchers));
            let (dels, sets) =
                (Stage::requests(Operation::Del, keys), Stage::requests(Operation::Set, keys));
            assert_eq!(stage.run(&dels[0]).as_deref(), Some(&b":1\r\n"[..]));
            assert_eq!(stage.run(&sets[0]).as_deref(), Some(&b"+OK\r\n"[..]));
            let mut turn = 0;
            bencher.iter(|| {
                turn = (turn + 1) % dels.len();
                (stage.run(black_box(&dels[turn])), stage.run(black_box(&sets[turn])))
            });
        });
    }
}

criterion_group!(benches, store);
criterion_main!(benches);
